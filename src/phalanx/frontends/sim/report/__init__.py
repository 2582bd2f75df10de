"""Reports of simulations: one self-contained page, or one figure, made from results.

`facts` boils one run down to what a report shows, wherever that run took place; `page` and `figure` draw the
facts of several runs side by side. Nothing here knows the engine: results and the scenario go in, text comes out.
"""
