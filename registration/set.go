package registration

import (
	"fmt"
	"slices"
	"strings"
)

// named is a Driver or a HubDriver.
type named interface{ Name() string }

// Pick returns the driver with the given name. An unknown name is an error that lists the known ones, never a default.
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

// checkNames refuses drivers without a name and two of one name.
func checkNames[D named](drivers []D) error {
	seen := map[string]bool{}
	for _, d := range drivers {
		switch name := d.Name(); {
		case name == "":
			return fmt.Errorf("a driver of type %T has no name", d)
		case seen[name]:
			return fmt.Errorf("two drivers have the name %q: pass one of them", name)
		default:
			seen[name] = true
		}
	}
	return nil
}
