"""Between the world and the engine: fold events into state, ask for a plan, carry it out, explain it.

`control.spec` reads what people write; `control.state` remembers; `control.forward` runs the loop on
a virtual clock; `control.explain` puts reasons into sentences.
"""
