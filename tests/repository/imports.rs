//! Which source file of a crate takes items from which other file.
//!
//! A file is a module with its inline modules. It takes an item that it names in a `use` or in a path, and it takes the
//! item from the file that defines it, however many modules hand it on. A module is a part of the modules above it: of
//! their items only functions count as taken. Method calls, code that other crates' macros make and code for tests are
//! not seen.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

/// Names that are followed from one `use` to the next; names that stand for each other end here.
const STEPS: usize = 16;

/// A path's segments.
type Segments = Vec<String>;

/// Names of the items that a file takes, by that file and the file that defines them.
pub(crate) type Imports = BTreeMap<(String, String), BTreeSet<String>>;

/// One module.
#[derive(Default)]
struct Module {
    /// Its file, from the crate's `src`.
    file: String,
    parent: usize,
    children: HashMap<String, usize>,
    /// Items that it defines, and whether each is a function.
    items: HashMap<String, bool>,
    /// Names that a `use` brings, and the paths that they stand for.
    aliases: HashMap<String, Segments>,
    /// Modules of which a `use` brings all names.
    globs: Vec<Segments>,
    /// Paths in its code.
    named: Vec<Segments>,
}

/// Where a path leads.
enum Target {
    Module(usize),
    /// An item of this module.
    Item(usize, String),
}

/// All modules of a library; the first is its root.
pub(crate) struct Crate {
    modules: Vec<Module>,
}

impl Crate {
    /// Reads the library whose `lib.rs` lies in `source`.
    pub(crate) fn read(source: &Path) -> Self {
        let mut found = Self { modules: vec![Module { file: "lib.rs".into(), ..Module::default() }] };
        let text = std::fs::read_to_string(source.join("lib.rs")).expect("a library has a lib.rs");
        found.read_items(0, &parse(&text).items, source, source);
        found
    }

    /// Returns what each file takes from which other file.
    pub(crate) fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (at, module) in self.modules.iter().enumerate() {
            for segments in &module.named {
                let Some(Target::Item(from, name)) = self.resolve(at, segments, STEPS) else { continue };
                let is_whole = self.is_above(from, at) && !self.modules[from].items[&name];
                let from = &self.modules[from].file;
                if *from != module.file && !is_whole {
                    imports.entry((module.file.clone(), from.clone())).or_default().insert(name);
                }
            }
        }
        imports
    }

    /// Whether `at` is a part of the module `above`.
    fn is_above(&self, above: usize, mut at: usize) -> bool {
        while at != above && at != 0 {
            at = self.modules[at].parent;
        }
        at == above
    }

    fn read_items(&mut self, at: usize, items: &[Item], source: &Path, folder: &Path) {
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Mod(module) => self.read_module(at, module, source, folder),
                Item::Use(import) => self.read_use(at, import),
                other => {
                    let is_function = matches!(other, Item::Fn(_));
                    self.modules[at].items.extend(name_of(other).map(|name| (name, is_function)));
                    let mut names = Names { found: &mut self.modules[at].named };
                    names.visit_item(other);
                }
            }
        }
    }

    fn read_module(&mut self, parent: usize, module: &ItemMod, source: &Path, folder: &Path) {
        let (name, at) = (module.ident.to_string(), self.modules.len());
        let folder = folder.join(&name);
        self.modules[parent].children.insert(name, at);
        let file = self.modules[parent].file.clone();
        self.modules.push(Module { parent, file, ..Module::default() });
        if let Some((_, items)) = &module.content {
            return self.read_items(at, items, source, &folder);
        }
        let path =
            [folder.with_extension("rs"), folder.join("mod.rs")].into_iter().find(|path| path.exists());
        let path = path.unwrap_or_else(|| panic!("no file of the module {}", folder.display()));
        self.modules[at].file = relative(&path, source);
        let text = std::fs::read_to_string(&path).expect("it was just found");
        self.read_items(at, &parse(&text).items, source, &folder);
    }

    /// A module that only hands a name on does not take it.
    fn read_use(&mut self, at: usize, import: &ItemUse) {
        let takes = matches!(import.vis, Visibility::Inherited);
        let module = &mut self.modules[at];
        for (segments, alias) in leaves(&import.tree) {
            match alias {
                Some(alias) => {
                    module.aliases.insert(alias, segments.clone());
                    if takes {
                        module.named.push(segments);
                    }
                }
                None => module.globs.push(segments),
            }
        }
    }

    fn resolve(&self, at: usize, segments: &[String], steps: usize) -> Option<Target> {
        let (first, rest) = segments.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(at),
            "super" => Target::Module(self.modules[at].parent),
            name => self.look_up(at, name, steps)?,
        };
        for segment in rest {
            let Target::Module(module) = target else { break };
            target = match segment.as_str() {
                "super" => Target::Module(self.modules[module].parent),
                "self" => Target::Module(module),
                name => self.look_up(module, name, steps)?,
            };
        }
        Some(target)
    }

    fn look_up(&self, at: usize, name: &str, steps: usize) -> Option<Target> {
        let (steps, module) = (steps.checked_sub(1)?, &self.modules[at]);
        if let Some(child) = module.children.get(name) {
            return Some(Target::Module(*child));
        }
        if module.items.contains_key(name) {
            return Some(Target::Item(at, name.to_owned()));
        }
        if let Some(path) = module.aliases.get(name) {
            // A name that stands for itself is a crate's.
            return if path[0] == name { None } else { self.resolve(at, path, steps) };
        }
        module.globs.iter().find_map(|glob| match self.resolve(at, glob, steps)? {
            Target::Module(from) => self.look_up(from, name, steps),
            Target::Item(..) => None,
        })
    }
}

/// Gathers the paths in code.
struct Names<'a> {
    found: &'a mut Vec<Segments>,
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.found.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        paths_in(call.tokens.clone(), self.found);
    }

    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        self.found.extend(leaves(&import.tree).into_iter().map(|(segments, _)| segments));
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !matches!(item, ImplItem::Fn(function) if is_for_tests(&function.attrs)) {
            visit::visit_impl_item(self, item);
        }
    }
}

/// Gathers the paths in a macro's arguments, which need not be expressions.
fn paths_in(tokens: TokenStream, found: &mut Vec<Segments>) {
    let (mut path, mut colons) = (Segments::new(), 0);
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 {
                    found.push(std::mem::take(&mut path));
                }
                path.push(name.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => paths_in(group.stream(), found),
            _ => found.push(std::mem::take(&mut path)),
        }
    }
    found.push(path);
}

fn parse(text: &str) -> syn::File {
    syn::parse_file(text).expect("the compiler has read it")
}

fn relative(path: &Path, source: &Path) -> String {
    path.strip_prefix(source).map(PathBuf::from).expect("modules lie below the root").display().to_string()
}

/// Returns the paths that a `use` names, each with the name that it brings; `None` stands for all names of a module.
fn leaves(tree: &UseTree) -> Vec<(Segments, Option<String>)> {
    fn walk(tree: &UseTree, mut before: Segments, found: &mut Vec<(Segments, Option<String>)>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                walk(&path.tree, before, found);
            }
            UseTree::Name(name) if name.ident == "self" => {
                let alias = before.last().cloned();
                found.push((before, alias));
            }
            UseTree::Name(name) => {
                before.push(name.ident.to_string());
                found.push((before, Some(name.ident.to_string())));
            }
            UseTree::Rename(rename) => {
                before.push(rename.ident.to_string());
                found.push((before, Some(rename.rename.to_string())));
            }
            UseTree::Glob(_) => found.push((before, None)),
            UseTree::Group(group) => group.items.iter().for_each(|item| walk(item, before.clone(), found)),
        }
    }
    let mut found = Vec::new();
    walk(tree, Vec::new(), &mut found);
    found
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether `#[cfg(…)]` with the word `test` stands before the code.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    fn names_test(tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(name) => name == "test",
            TokenTree::Group(group) => names_test(group.stream()),
            _ => false,
        })
    }
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => names_test(list.tokens.clone()),
        _ => false,
    })
}
