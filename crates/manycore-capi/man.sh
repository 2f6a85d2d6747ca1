#!/bin/sh
# Writes the man pages of section 3, in mdoc: one for each header of C, from the comment at its top, and
# one for each function, macro and struct, from the comment above its declaration. Names that end with
# `_` are private, and have none.
#   ./man.sh FOLDER
set -eu
[ $# -eq 1 ] || { echo "usage: man.sh FOLDER" >&2; exit 2; }
to=$1
case $to in /*) ;; *) to=$PWD/$to ;; esac
cd "$(dirname "$0")/include/manycore"
mkdir -p "$to"
for header in *.h; do
    [ "$header" != urcu.h ] || continue
    awk -v to="$to" -v header="$header" '
        # A line of text, with nothing that the formatter would take for a request.
        function plain(line) {
            gsub(/\\/, "\\e", line)
            if (line ~ /^[.'\'']/) line = "\\&" line
            return line
        }
        # A line of prose, each sentence of it on a line of its own, as mdoc has it.
        function prose(line, page) {
            while (match(line, /[.] [A-Z-]/)) {
                print plain(substr(line, 1, RSTART)) > page
                line = substr(line, RSTART + 2)
            }
            print plain(line) > page
        }
        # The comment, without its stars.
        function describe(page,    at, line, code) {
            for (at = 1; at <= comments; at++) {
                line = comment[at]
                if (line ~ /^    /) {
                    if (!code) print ".Bd -literal -offset indent" > page
                    code = 1
                    print plain(substr(line, 5)) > page
                } else if (line == "" && code) {
                    # Code goes on after a blank line, or does not.
                    if (at < comments && comment[at + 1] ~ /^    /) { print "" > page; continue }
                    print ".Ed" > page
                    code = 0
                    if (at < comments) print ".Pp" > page
                } else if (line == "") {
                    if (at < comments && comment[at + 1] !~ /^    /) print ".Pp" > page
                } else {
                    prose(line, page)
                }
            }
            if (code) print ".Ed" > page
        }
        function sentence(    text, at) {
            text = comment[1]
            for (at = 2; at <= comments && text !~ /[.:](  *|$)/; at++) text = text " " comment[at]
            sub(/[.:]( .*)?$/, "", text)
            sub(/[.:;] .*$/, "", text)
            return plain(text == "" ? "see " title : text)
        }
        function head(page, name, summary) {
            print ".Dd $Mdocdate$" > page
            print ".Dt " toupper(name) " 3" > page
            print ".Os\n.Sh NAME\n.Nm " name > page
            print ".Nd " summary > page
        }
        function declare(page,    at) {
            print ".Sh SYNOPSIS\n.In manycore/" header "\n.Bd -literal" > page
            for (at = 1; at <= declared; at++) print plain(declaration[at]) > page
            print ".Ed\n.Sh DESCRIPTION" > page
        }
        function sort_pages(    at, to, name) {
            for (at = 2; at <= count; at++) {
                name = pages[at]
                for (to = at - 1; to >= 1 && pages[to] > name; to--) pages[to + 1] = pages[to]
                pages[to + 1] = name
            }
        }
        # What a comment is about: the declaration below it.
        function finish(    name, first, page, at) {
            if (!declared) return
            first = declaration[1]
            if (first ~ /^(static inline )?[a-z].*[ *]mc_[a-z0-9_]*\(/ && first !~ /^typedef/) {
                name = first
                sub(/\(.*/, "", name)
                sub(/.*[ *]/, "", name)
            } else if (first ~ /^#define mc_/) {
                name = first
                sub(/^#define /, "", name)
                sub(/\(.*/, "", name)
            } else if (first ~ /^(struct|union) mc_[a-z_0-9]* \{/) {
                name = first
                sub(/^(struct|union) /, "", name)
                sub(/ .*/, "", name)
            } else if (first ~ /^typedef/) {
                name = first
                if (name ~ /\(\*mc_/) { sub(/.*\(\*/, "", name); sub(/\).*/, "", name) }
                else { sub(/;.*/, "", name); sub(/.* /, "", name) }
            }
            if (name == "" || name ~ /_$/) { declared = 0; return }
            # The function of a struct of the same name has the struct on its page.
            if (first ~ /^struct .*[{]$/) {
                for (at = 1; at <= declared; at++) struct[name] = struct[name] plain(declaration[at]) "\n"
            } else if (name in struct) {
                declaration[1] = struct[name] "\n" first
            }
            if (!(name in written)) pages[++count] = name
            written[name] = 1
            page = to "/" name ".3"
            if (comments) summary[name] = sentence()
            else summary[name] = "see " title
            head(page, name, summary[name])
            declare(page)
            if (comments) describe(page)
            else print "See\n.Xr " title " 3 ." > page
            print ".Sh SEE ALSO\n.Xr " title " 3" > page
            close(page)
            declared = 0
        }
        BEGIN {
            title = header
            sub(/\.h$/, "", title)
            title = title == "manycore" ? title : "manycore_" title
        }
        # Comments of their own lines.
        /^\/\*/ && !in_comment {
            finish()
            comments = 0
            in_comment = 1
            text = substr($0, 3)
            is_over = text ~ /\*\/$/
            sub(/ *\*\/$/, "", text)
            sub(/^ /, "", text)
            if (text != "") comment[++comments] = text
            if (is_over) in_comment = 0
            else next
            next
        }
        in_comment {
            text = $0
            is_over = text ~ /\*\/$/
            sub(/ *\*\/$/, "", text)
            sub(/^ \*( |$)/, "", text)
            if (!is_over || text != "") comment[++comments] = text
            if (is_over) {
                in_comment = 0
                if (!tops) {
                    tops = comments
                    for (at = 1; at <= comments; at++) top[at] = comment[at]
                    comments = 0
                }
            }
            next
        }
        /^$/ { finish(); in_body = 0; next }
        /^(#define mc_|[a-z].*mc_|static inline)/ && !declared {
            is_define = /^#define/
            is_struct = /^(struct|union) .*\{$/
        }
        declared && !is_struct && !is_define && declaration[declared] ~ /[;)]$/ && /^\{/ { in_body = 1 }
        in_body { if (/^\}/) { in_body = 0; finish(); comments = 0 } next }
        /^#define mc_/ {
            finish()
            text = $0
            sub(/\).*/, ")", text)
            declared = 1
            declaration[1] = text
            finish()
            comments = 0
            next
        }
        /^#/ || /^extern/ || /^\}$/ { finish(); comments = 0; next }
        /^[a-z]/ || declared {
            if (declared && !is_struct && declaration[declared] ~ /;$/) { finish() }
            declaration[++declared] = $0
            if (!is_struct && $0 ~ /;$/) { finish(); comments = 0 }
            if (is_struct && $0 ~ /^\};/) { finish(); comments = 0; is_struct = 0 }
        }
        END {
            finish()
            page = to "/" title ".3"
            comments = tops
            for (at = 1; at <= tops; at++) comment[at] = top[at]
            head(page, title, sentence())
            print ".Sh SYNOPSIS\n.In manycore/" header "\n.Sh DESCRIPTION" > page
            describe(page)
            print ".Sh SEE ALSO" > page
            sort_pages()
            for (at = 1; at <= count; at++)
                print ".Xr " pages[at] " 3" (at < count ? " ," : "") > page
        }
    ' "$header"
done
