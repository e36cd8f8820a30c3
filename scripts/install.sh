#!/bin/sh
# install.sh BINARY DESTDIR PREFIX SYSCONFDIR: what `make install` does once the binary is built.
set -eu
cd "$(dirname "$0")/.."

binary=$1 root=$2 prefix=$3 sysconf=$4
share=$root$prefix/share
units=$root$prefix/lib/systemd/system

install -D -m 755 "$binary" "$root$prefix/bin/forebay"

mkdir -p "$units"
sed -e "s|/usr/local/bin/forebay|$prefix/bin/forebay|" -e "s|/etc/forebay|$sysconf/forebay|" \
    packaging/forebay.service >"$units/forebay.service"
chmod 644 "$units/forebay.service"

install -D -m 644 packaging/sysusers.conf "$root$prefix/lib/sysusers.d/forebay.conf"

# The configuration belongs to whoever edits it: never overwritten.
config=$root$sysconf/forebay/forebay.toml
[ -e "$config" ] || install -D -m 644 packaging/forebay.toml "$config"

mkdir -p "$share/man/man1"
"$binary" man --out "$share/man/man1"

completion() { mkdir -p "$share/$2" && "$binary" completions "$1" >"$share/$2/$3"; }
completion bash bash-completion/completions forebay
completion zsh zsh/site-functions _forebay
completion fish fish/vendor_completions.d forebay.fish

for file in LICENSE-MIT LICENSE-APACHE; do install -D -m 644 "$file" "$share/doc/forebay/$file"; done
echo "installed below $root$prefix; start with: systemd-sysusers && systemctl daemon-reload && systemctl enable --now forebay"
