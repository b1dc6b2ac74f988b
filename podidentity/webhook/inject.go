package webhook

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// stronger lists variables that take precedence over the sidecar's in at least
// one SDK.
var stronger = []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_PROFILE",
	"AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", envRelativeURI}

// secretForm is the form of rand.Text. Many containers with a longer secret
// would make a patch without bound.
var secretForm = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// injection is the change of one pod. The patch names single paths, so fields
// that this build does not know survive.
type injection struct {
	options  Options
	ca       []byte
	pod      *pod
	binding  *v1alpha1.IAMBinding
	secret   string
	patch    []jsonpatch.Operation
	warnings []string
}

// run fills the patch and the warnings, or returns the reason to deny the pod.
func (in *injection) run() error {
	if err := in.refuse(); err != nil {
		return err
	}
	missing, err := in.missing()
	if err != nil {
		return err
	}
	spec := &in.pod.Spec
	// Variables come first, because an init container at the front shifts the
	// others.
	if in.addVariables("/spec/containers", spec.Containers)+
		in.addVariables("/spec/initContainers", spec.InitContainers) == 0 {
		in.warnf(
			"no container of the pod gets the credentials of IAMBinding %q: check its spec.containers and the annotation %s",
			in.binding.Name, AnnotationSkipContainers)
	}
	in.warnOfQoS()
	insert(in, "/spec/initContainers", len(spec.InitContainers), 0, missing...)
	return in.addVolume()
}

func (in *injection) refuse() error {
	spec := &in.pod.Spec
	switch {
	case spec.HostNetwork:
		return in.deny("the pod has hostNetwork, so every process of the node could get the credentials: remove hostNetwork")
	case in.pod.runsOnWindows():
		return in.deny("the pod runs on Windows, for which there is no sidecar")
	case len(spec.Containers) == 0, slices.ContainsFunc(spec.Containers, isNameless),
		slices.ContainsFunc(spec.InitContainers, isNameless):
		return in.deny("the pod has no container, or one without a name: name each")
	}
	return nil
}

func (in *injection) deny(format string, args ...any) error {
	return fmt.Errorf("IAMBinding %q: %s, or set the annotation %s: \"false\"", in.binding.Name,
		fmt.Sprintf(format, args...), AnnotationInject)
}

func (in *injection) taken(kind, name string) error {
	return in.deny("the pod has its own %s %q, a name of the webhook: rename or remove it", kind, name)
}

func (in *injection) redirect() bool { return in.pod.Metadata.Annotations.Redirect == "true" }

// missing returns the init containers to add, all or none, and sets the secret.
// It refuses a pod that uses their names in another way.
func (in *injection) missing() ([]corev1.Container, error) {
	if i := slices.IndexFunc(in.pod.Spec.Containers, isReserved); i >= 0 {
		return nil, in.taken("container", in.pod.Spec.Containers[i].Name)
	}
	in.secret = rand.Text()
	own := in.ownContainers()
	present := slices.DeleteFunc(slices.Clone(in.pod.Spec.InitContainers), func(c container) bool {
		return !isReserved(c)
	})
	switch {
	case len(present) == 0:
		return own, nil
	case !slices.EqualFunc(present, own, isOurs):
		return nil, in.taken("init container", present[0].Name)
	}
	in.secret = findEnv(&present[len(present)-1], envSecret).Value // the sidecar's
	return nil, nil
}

func (in *injection) addVolume() error {
	volumes := in.pod.Spec.Volumes
	i := slices.IndexFunc(volumes, func(v volume) bool { return v.Name == podidentity.TokenVolume })
	if i < 0 {
		insert(in, "/spec/volumes", len(volumes), len(volumes), in.volume())
	} else if !in.isToken(volumes[i]) {
		return in.taken("volume", podidentity.TokenVolume)
	}
	return nil
}

// addVariables points containers at the sidecar, and returns their number.
func (in *injection) addVariables(path string, containers []container) int {
	skip := map[string]bool{}
	for name := range strings.SplitSeq(in.pod.Metadata.Annotations.SkipContainers, ",") {
		skip[strings.TrimSpace(name)] = true
	}
	pointed := 0
	for i := range containers {
		c, only := &containers[i], in.binding.Spec.Containers
		if isReserved(*c) || skip[c.Name] || len(only) > 0 && !slices.Contains(only, c.Name) {
			continue
		}
		pointed++
		in.addVariablesTo(fmt.Sprintf("%s/%d/env", path, i), c)
	}
	return pointed
}

func (in *injection) addVariablesTo(path string, c *container) {
	want := in.variables()
	var missing []variable
	for _, v := range want {
		switch has := findEnv(c, v.Name); {
		case has == nil:
			missing = append(missing, v)
		case *has != v:
			in.warnf("container %.63q sets %s itself: it does not get the credentials of IAMBinding %q", c.Name, v.Name,
				in.binding.Name)
			return
		}
	}
	for _, name := range stronger {
		if name != want[0].Name && findEnv(c, name) != nil {
			in.warnf("container %.63q sets %s, which AWS SDKs prefer to the credentials of IAMBinding %q: remove it", c.Name,
				name, in.binding.Name)
		}
	}
	insert(in, path, len(c.Env), len(c.Env), missing...)
}

// insert adds values at an index of an array of the given length. An empty
// array may be absent or null.
func insert[T any](in *injection, path string, length, at int, values ...T) {
	if length == 0 && len(values) > 0 {
		in.patch = append(in.patch, jsonpatch.NewOperation("add", path, values))
		return
	}
	for i, v := range values {
		in.patch = append(in.patch, jsonpatch.NewOperation("add", fmt.Sprintf("%s/%d", path, at+i), v))
	}
}

// warnf adds a warning, which the API server shows to the user.
func (in *injection) warnf(format string, args ...any) {
	in.warnings = append(in.warnings, fmt.Sprintf(format, args...))
}

// findEnv returns the last variable with a name, as the kubelet does.
func findEnv(c *container, name string) *variable {
	for i := range slices.Backward(c.Env) {
		if c.Env[i].Name == name {
			return &c.Env[i]
		}
	}
	return nil
}
