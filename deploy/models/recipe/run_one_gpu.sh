#!/bin/sh
# The whole recipe after the corpus is built: about 20 minutes on one H200. TINY_CORPUS has the corpus.*.xz files;
# results appear under $TINY_WORK/export. Each stage can be run again alone.
set -eu
cd "$(dirname "$0")"
: "${TINY_CORPUS:?directory with corpus.train.xz and corpus.val.xz}" "${TINY_WORK:?directory to work in}"
export TINY_CORPUS TINY_WORK
python3 tokens.py
python3 train_target.py --seconds 490
python3 own_text.py --rounds 9
python3 train_drafter.py --seconds 420
python3 evaluate.py
python3 golden.py
