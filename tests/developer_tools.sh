# Sourced: `tools` is a folder with the developer tools of developer-requirements.txt, made or renewed if the file has changed.
tools=$PWD/build/developer-tools
if ! cmp -s tests/developer-requirements.txt "$tools/installed.txt"; then
  rm -rf "$tools"
  python3 -m venv "$tools" 2>/dev/null || /usr/bin/python3 -m venv "$tools"  # Debian's has it after install_packages.sh
  "$tools/bin/pip" install --quiet --disable-pip-version-check -r tests/developer-requirements.txt
  cp tests/developer-requirements.txt "$tools/installed.txt"
fi
