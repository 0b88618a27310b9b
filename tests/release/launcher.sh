#!/bin/sh
# Start the plugin with the newest Python that it supports.
set -eu
minors="@MINORS@"
file=$0
# krew links to this file; `readlink -f` is missing in older macOS.
while [ -L "$file" ]; do
  target=$(readlink "$file")
  case $target in
    /*) file=$target ;;
    *) file=$(dirname "$file")/$target ;;
  esac
done
# python3 is last: on macOS it may only offer to install itself.
for python in $(printf 'python3.%s ' $minors) python3; do
  # Version managers have commands for versions of Python that are not installed.
  if "$python" -c "import sys; sys.exit(str(sys.version_info[1]) not in '$minors'.split())" \
    2>/dev/null; then
    exec "$python" "$(dirname "$file")/pex/kubectl-ebb" "$@"
  fi
done
echo "kubectl ebb: none of these minor versions of Python 3 is in PATH: $minors" >&2
exit 2
