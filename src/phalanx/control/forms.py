"""The forms of all gangs seen so far, numbered as they appear."""

from __future__ import annotations

from phalanx.model.fleet import Fleet
from phalanx.model.form import Form, form_of_gang
from phalanx.model.gang import Gang, Role
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.topology import Topology

#: Roles remembered by identity. A log has as many as it has sizes; a daemon whose every gang has its own stops here.
OBJECTS_MOST = 1024


class Forms:
    """Equal forms have one number; the numbers are for life."""

    def __init__(self) -> None:
        """None yet."""
        self.forms: list[Form] = []
        self._numbers: dict[Form, int] = {}
        self._by_roles: dict[tuple[tuple[Role, ...], Topology], Form] = {}
        self._splitting: set[Form] = set()
        self._of_object: dict[int, tuple[Gang, Form]] = {}  # by identity of the roles, which the gang keeps alive

    def of_gang(self, fleet: Fleet, gang: Gang) -> Form:
        """The form of a gang. Logs repeat the same roles thousands of times, so those are looked up as they are."""
        known = self._of_object.get(id(gang.roles))
        # By identity only: a miss costs a hash, a false hit would place a gang by another's wishes.
        if known is not None and known[0].topology is gang.topology:
            return known[1]
        key = (gang.roles, gang.topology)
        found = self._by_roles.get(key)
        if found is None:
            found = form_of_gang(fleet, gang)
            # Roles that differ in their size only have equal forms: one object, so that it is soon found again.
            found = self._by_roles[key] = self.forms[self._numbers[found]] if found in self._numbers else found
            if any(0 < role.shape.amount(DEVICE_KIND) < MILLI for role in found.roles):
                self._splitting.add(found)
        if len(self._of_object) < OBJECTS_MOST:  # hashing roles is six calls; but not everybody's are one object
            self._of_object[id(gang.roles)] = (gang, found)
        return found

    def number_of(self, form: Form) -> int:
        """The number of a form, new or known."""
        found = self._numbers.get(form)
        if found is None:
            found = self._numbers[form] = len(self.forms)
            self.forms.append(form)
        return found

    def splits_devices(self, form: Form) -> bool:
        """Whether its members ask for a part of a device."""
        return bool(self._splitting) and form in self._splitting
