package github

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// Grant lists what an installation token may do.
type Grant struct {
	// AppID is the client ID of the App, or its numeric ID. Empty:
	// Provider.AppID.
	AppID string
	// Installation is the ID of the App's installation, the last part of the
	// URL of its settings.
	Installation int64
	// Repositories are the names of 1 to 100 repositories, without their owner.
	// GitHub accepts more, but describes each at length: the answer would
	// exceed the size that the provider reads.
	Repositories []string
	// AllRepositories grants all repositories of the installation, also future
	// ones. It excludes Repositories.
	AllRepositories bool
	// Permissions map each permission, such as "contents", to its level "read",
	// "write" or "admin". At least one is required. GitHub adds
	// "metadata": "read" to every token.
	Permissions map[string]string
}

const maxRepositories = 100

type (
	repositoriesKey struct{}
	permissionsKey  struct{}
)

// WithRepositories narrows the token of one call to some of the granted
// repositories. Any other repository is [auth.ErrDenied].
func WithRepositories(names ...string) auth.Option {
	return auth.WithProviderOption(repositoriesKey{}, slices.Clone(names))
}

// WithPermissions narrows the token of one call to some of the granted
// permissions, at the granted level or a lower one. Anything more is
// [auth.ErrDenied].
func WithPermissions(permissions map[string]string) auth.Option {
	return auth.WithProviderOption(permissionsKey{}, maps.Clone(permissions))
}

// granted returns the grant of the subject, or of the controller itself for
// nil.
func (p *Provider) granted(subject *corev1.ServiceAccount, opts *provider.Options) (g Grant, err error) {
	if g = p.OwnGrant; subject != nil {
		if g, err = p.Grant(subject); err != nil {
			return Grant{}, failed(err, auth.ErrDenied, "the controller refuses")
		}
	}
	g.AppID = cmp.Or(g.AppID, p.AppID)
	switch problem := g.check(); {
	case g.Installation <= 0 && subject == nil:
		return Grant{}, self.MisconfiguredAs(provider.CauseNoOwnIdentity, "give it a grant, or name a ServiceAccount",
			"the controller itself has no installation of the App").About("github.Provider.OwnGrant", "auth.WithServiceAccount")
	case g.Installation <= 0:
		return Grant{}, self.Denied("name its installation, repositories and permissions in the controller",
			"the controller grants this ServiceAccount nothing at GitHub").About(optionGrant)
	case problem != "":
		return Grant{}, self.Misconfigured("correct it in the controller", "the grant for GitHub is refused: %s", problem).
			About(optionGrant, optionAppID)
	}
	g.Repositories = slices.Sorted(slices.Values(g.Repositories)) // a copy: the slice is the controller's
	return g.narrowed(opts)
}

// narrowed returns the part of the grant that the call asks for.
func (g Grant) narrowed(opts *provider.Options) (Grant, error) {
	asked := g
	names, fewer := opts.Value(repositoriesKey{}).([]string)
	if fewer {
		asked.Repositories, asked.AllRepositories = slices.Sorted(slices.Values(names)), false
	}
	permissions, less := opts.Value(permissionsKey{}).(map[string]string)
	if less {
		asked.Permissions = permissions
	}
	if !fewer && !less {
		return g, nil
	}
	if problem := asked.check(); problem != "" {
		return Grant{}, self.Misconfigured("correct what the call asks for", "the request is refused: %s", problem).
			About("github.WithRepositories", "github.WithPermissions")
	}
	if excess := asked.excess(g); excess != "" {
		return Grant{}, self.Denied("ask for less, or grant it", "the call asks for more than was granted: %s", excess).
			About("github.WithRepositories", "github.WithPermissions", optionGrant)
	}
	return asked, nil
}

// check returns the first malformed field.
func (g Grant) check() (problem string) {
	switch {
	case !isName(g.AppID):
		return fmt.Sprintf("%.120q is not the ID of a GitHub App", g.AppID)
	case g.AllRepositories == (len(g.Repositories) > 0):
		return "it has to name either repositories or all of them"
	case len(g.Repositories) > maxRepositories:
		return fmt.Sprintf("it names %d repositories, at most %d are possible", len(g.Repositories), maxRepositories)
	case len(g.Permissions) == 0:
		return "it names no permission"
	}
	for _, name := range g.Repositories {
		if !isName(name) || name == "." || name == ".." {
			return fmt.Sprintf("%.120q is not the name of a repository without its owner", name)
		}
	}
	for name, l := range g.Permissions {
		if !isName(name) || level(l) == 0 {
			return fmt.Sprintf("%.120q is not a permission with the level read, write or admin", name+":"+l)
		}
	}
	return ""
}

// isName accepts names of repositories and permissions, and IDs of Apps. None
// of them holds a separator of an identity.
func isName(s string) bool {
	const most, allowed = 100, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return s != "" && len(s) <= most && strings.Trim(s, allowed) == ""
}

// level orders the levels of permissions. Zero is an unknown level.
func level(name string) int { return 1 + slices.Index([]string{"read", "write", "admin"}, name) }

// excess describes the first value of g that was not granted, and the granted
// values. GitHub ignores the case of names.
func (g Grant) excess(granted Grant) string {
	if g.AllRepositories && !granted.AllRepositories {
		return "all repositories, granted are " + brief(granted.Repositories)
	}
	for _, name := range g.Repositories {
		same := func(other string) bool { return strings.EqualFold(other, name) }
		if !granted.AllRepositories && !slices.ContainsFunc(granted.Repositories, same) {
			return fmt.Sprintf("the repository %.120q, granted are %s", name, brief(granted.Repositories))
		}
	}
	for _, one := range g.permissions() {
		name, l, _ := strings.Cut(one, ":")
		if level(l) == 0 || level(l) > level(granted.Permissions[name]) {
			return fmt.Sprintf("the permission %.120q, granted are %s", one, brief(granted.permissions()))
		}
	}
	return ""
}

// identity returns a text that is unique to the grant.
func (g Grant) identity() string {
	if g.Installation <= 0 {
		return ""
	}
	repositories := "*"
	if !g.AllRepositories {
		repositories = strings.Join(g.Repositories, ",")
	}
	return "app=" + g.AppID + " installation=" + strconv.FormatInt(g.Installation, 10) + " repositories=" + repositories +
		" permissions=" + strings.Join(g.permissions(), ",")
}

// permissions returns a sorted list of name:level.
func (g Grant) permissions() []string {
	list := make([]string, 0, len(g.Permissions))
	for name, l := range g.Permissions {
		list = append(list, name+":"+l)
	}
	slices.Sort(list)
	return list
}

// brief quotes the first values of a list.
func brief(values []string) string {
	const most = 5
	if len(values) <= most {
		return fmt.Sprintf("%.120q", values)
	}
	return fmt.Sprintf("%.120q and %d more", values[:most], len(values)-most)
}
