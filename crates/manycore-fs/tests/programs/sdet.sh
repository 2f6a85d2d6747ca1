#!/bin/sh
# One script of SDET's kind: the commands of somebody who writes and compiles a small program and its
# manual page (K42's paper names ls, nroff, gcc and grep, and leaves out ps and df, as here). It works in
# a new folder of the current directory, removes it at the end, and prints what the commands print.
#   sdet.sh [NAME [ROUNDS]]
set -eu
name=${1:-sdet} rounds=${2:-1}
export LC_ALL=C
mkdir "$name"
cd "$name"
round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    mkdir src doc bin tmp
    for part in one two three; do
        printf '#include <stdio.h>\nint %s(int n) { return n + %s; }\n' "$part" "${#part}" >"src/$part.c"
        printf '.TH %s 1\n.SH NAME\n%s \\- adds a number\n.SH BUGS\nNone that is known.\n' "$part" "$part" >"doc/$part.1"
    done
    cat >src/main.c <<'END'
#include <stdio.h>
int one(int), two(int), three(int);
int main(void) { printf("%d\n", one(two(three(0)))); return 0; }
END
    ls src doc
    grep -l stdio src/*.c
    if command -v gcc >/dev/null; then
        for part in main one two three; do gcc -O1 -c "src/$part.c" -o "bin/$part.o"; done
        gcc -o bin/adds bin/*.o
        bin/adds
    fi
    if command -v nroff >/dev/null; then
        for part in one two three; do nroff -man "doc/$part.1" >"doc/$part.txt"; done
        grep -h known doc/*.txt
    fi
    cp -R src tmp/copy
    sed 's/n + /n - /' src/two.c >tmp/two.c
    diff src/two.c tmp/two.c || :
    mv tmp/two.c tmp/copy/two.c
    find . -type f -name '*.c' | sort | xargs cat | sort | uniq -c | sort -k 2
    ln src/one.c tmp/link
    ln -s ../src tmp/symlink
    cat tmp/link tmp/symlink/two.c
    chmod 444 tmp/link
    touch tmp/empty
    rm -f tmp/link
    ls -l src/one.c | cut -c 1-10
    rm -r src doc bin tmp
    ls
done
cd ..
rmdir "$name"
