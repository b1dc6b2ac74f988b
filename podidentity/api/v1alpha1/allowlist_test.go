package v1alpha1_test

import (
	"testing"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

func TestAllows(t *testing.T) {
	list := &v1alpha1.IAMRoleAllowList{Spec: v1alpha1.IAMRoleAllowListSpec{Rules: []v1alpha1.AllowRule{
		{Namespaces: []string{"a", "team-*"}, Roles: []string{account + "x", account + "team/*", account + "c|d"}},
		{Namespaces: []string{"b"}, Roles: []string{"*"}},
	}}}
	for name, test := range map[string]struct {
		list            *v1alpha1.IAMRoleAllowList
		namespace, role string
		want            bool
	}{
		"whole values":                  {list, "a", account + "x", true},
		"prefixes":                      {list, "team-1", account + "team/x", true},
		"all roles":                     {list, "b", account + "y", true},
		"role of another rule":          {list, "a", account + "y", false},
		"beginning of a whole value":    {list, "a", account + "xx", false},
		"unknown namespace":             {list, "c", account + "x", false},
		"role pattern c|d is literal":   {list, "a", account + "c", false},
		"role pattern c|d means itself": {list, "a", account + "c|d", true},
		"no list":                       {nil, "a", account + "x", false},
		"empty list":                    {&v1alpha1.IAMRoleAllowList{}, "a", account + "x", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.list.Allows(test.namespace, test.role); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
