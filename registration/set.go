package registration

import (
	"fmt"
	"slices"
	"strings"
)

// named is a Driver or a HubDriver.
type named interface{ Name() string }

// Pick returns the driver with the given name. An unknown name is an error that
// lists the known ones, never a default.
func Pick[D named](drivers []D, name string) (D, error) {
	var names []string
	for _, d := range drivers {
		if d.Name() == name {
			return d, nil
		}
		names = append(names, d.Name())
	}
	slices.Sort(names)
	var none D
	return none, fmt.Errorf("unknown auth type %q: use one of %s", name, strings.Join(names, ", "))
}
