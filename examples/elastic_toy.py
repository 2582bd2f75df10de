"""An elastic job without torch: N items, each done exactly once, whatever happens to its members.

    python examples/elastic_toy.py WORK                                     alone
    phalanx submit -g 2:8 -- python examples/elastic_toy.py WORK            as an elastic gang
    python examples/elastic_toy.py WORK --verify                            look at the books

The job itself is `phalanx.elastic.toy`: read `work` there for how a script is made elastic.
"""

# ruff: noqa: INP001 - a script, part of no package

import sys

from phalanx.elastic.toy import main

if __name__ == "__main__":
    sys.exit(main())
