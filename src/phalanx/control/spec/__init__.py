"""What people write in files, turned into model values or refused with the place of the mistake.

No file is opened here: `reader` turns text into a tree that remembers lines, `spot` walks it,
and the other modules each know one part of the schema. The simulator and every other front end
use the same ones, so a gang means the same everywhere.
"""
