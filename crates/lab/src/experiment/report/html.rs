//! The report as one page that needs nothing else: no script, no font, no picture from elsewhere.

use super::escape::escape;
use super::table::{Cell, Table};
use super::{Report, svg};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--dim:#64707f;--rule:#d9dee5;--paper:#fff;--head:#f3f5f8;
--c0:#1f6feb;--c1:#d1682b;--c2:#2d8a4e;--c3:#8a4fc7;--c4:#b8336a;--c5:#0e8a94;--c6:#8b7a1c;--c7:#5d6b7a}
@media(prefers-color-scheme:dark){:root{--ink:#e3e8ef;--dim:#97a3b3;--rule:#333c48;--paper:#12161c;--head:#1b212a;
--c0:#6ea8ff;--c1:#f0955c;--c2:#5fc486;--c3:#bd8df0;--c4:#ee7aa8;--c5:#4fc3cd;--c6:#cfbd55;--c7:#a3afbd}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1080px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{max-width:75ch}.dim{color:var(--dim)}.broken{color:var(--c4);font-weight:600}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top}th{background:var(--head)}
td.n{text-align:right;white-space:nowrap}.theirs{color:var(--dim);font-style:italic}
svg{width:100%;height:auto}svg text{font-family:system-ui,sans-serif;fill:var(--ink)}
";

/// The page.
pub(super) fn page(report: &Report) -> String {
    let title = escape(&report.title);
    let mut body = format!("<h1>{title}</h1>\n<p>{}</p>\n", escape(&report.about));
    report.tables.iter().for_each(|one| body.push_str(&table(one)));
    for chart in &report.charts {
        body.push_str(&format!("<h2>{}</h2>\n{}", escape(&chart.title), svg::draw(chart)));
    }
    for (word, lines) in report.remarks() {
        let class = if word.starts_with("BROKEN") { "broken" } else { "" };
        let line = |line: &String| format!("<p class=\"{class}\">{word}{}</p>\n", escape(line));
        body.push_str(&lines.iter().map(line).collect::<String>());
    }
    let machine = escape(&report.machine.to_string());
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<style>\n{STYLE}{}</style></head>\n\
         <body>\n{body}<p class=\"dim\">{machine}</p>\n</body></html>\n",
        svg::style()
    )
}

fn table(table: &Table) -> String {
    let is_theirs: Vec<bool> = table.columns.iter().map(|column| column.starts_with("slides: ")).collect();
    let head: String = table.columns.iter().map(|column| format!("<th>{}</th>", escape(column))).collect();
    let row = |cells: &Vec<Cell>| {
        let cell = |(cell, theirs): (&Cell, &bool)| {
            let number = if cell.is_number() { "n " } else { "" };
            let theirs = if *theirs { "theirs" } else { "" };
            format!("<td class=\"{number}{theirs}\">{}</td>", escape(&cell.text()))
        };
        format!("<tr>{}</tr>\n", cells.iter().zip(&is_theirs).map(cell).collect::<String>())
    };
    let rows: String = table.rows.iter().map(row).collect();
    let title = escape(&table.title);
    format!("<h2>{title}</h2>\n<div class=\"wide\"><table><tr>{head}</tr>\n{rows}</table></div>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_columns_are_told_apart() {
        let mut one = Table::new("t", ["ours", "slides: MB"]);
        one.row([Cell::from(1u64), Cell::from(2u64)]);
        assert!(
            table(&one).contains("<td class=\"n \">1</td><td class=\"n theirs\">2</td>"),
            "{}",
            table(&one)
        );
    }
}
