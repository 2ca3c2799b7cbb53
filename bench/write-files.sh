#!/bin/sh
# The peer of `nodestrap apply`: each file durably, one after the other, as a careful script does it.
# Usage: write-files.sh SOURCE TARGET < lines of "MODE /path"
set -eu
source=$1
target=$2
while read -r mode path; do
	install -D -m "$mode" "$source$path" "$target$path.new"
	sync "$target$path.new"
	mv -f "$target$path.new" "$target$path"
	sync "$target${path%/*}"
done
