package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/shell"
)

// judgeContainers judges each container on its own: which of them needs credentials is not known here. What hides the
// identity in one is a doubt if another has it, for a sidecar may be meant to use something else.
func (e *examination) judgeContainers(ctx context.Context, pod *corev1.Pod, audiences []string, restart string) Finding {
	if e.Container != "" {
		return e.judgeNamed(ctx, pod, audiences, restart)
	}
	stay := lasting(pod)
	var findings, hiding []Finding
	var without []string
	for i, c := range slices.Concat(stay, passing(pod)) {
		f := e.judgeContainer(pod, &c, audiences, restart)
		switch _, hides := e.hiddenIn(pod, &c, ""); {
		case hides:
			hiding = append(hiding, f)
		case f.Result != Skip:
			findings = append(findings, f)
		case i < len(stay) || leftOut(pod, e.cloud.skipKey, c.Name):
			without = append(without, shown(c.Name)+f.Message)
		}
	}
	works := slices.ContainsFunc(findings, func(f Finding) bool { return f.Result == Pass })
	for _, f := range hiding {
		if works {
			f.Result = Warn
		}
		findings = append(findings, f)
	}
	for _, result := range []Result{Fail, Warn, Unknown} {
		for _, f := range findings {
			if f.Result == result {
				return f
			}
		}
	}
	if len(without) > 0 {
		return unknown("these containers do not have the identity, and whether they need it is not known: "+
			strings.Join(without, ", "), nameContainer)
	}
	return findings[0]
}

// nameContainer is the remedy where it is not known which of a pod's containers gets no credentials.
const nameContainer = "name the one that gets no credentials: wid doctor --pod NAMESPACE/POD_NAME --container CONTAINER"

// judgeNamed judges the one container that the caller asks for.
func (e *examination) judgeNamed(ctx context.Context, pod *corev1.Pod, audiences []string, restart string) Finding {
	var names []string
	for _, c := range slices.Concat(lasting(pod), passing(pod)) {
		if names = append(names, c.Name); c.Name != e.Container {
			continue
		}
		f := e.judgeContainer(pod, &c, audiences, restart)
		if f.Result != Skip {
			return f
		}
		switch {
		case f.Message == "" && hasAny(pod, e.cloud.tokenFile):
			return fail(e.cloud.unset, "restart the pod; if it stays, something adds the container after the webhook, "+
				"whose reinvocationPolicy would have to be IfNeeded:\n"+restart,
				"the webhook has not changed the container %q, though others of the pod", shown(c.Name)).
				with(differs(e.cloud.tokenFile, "", "set by the webhook"))
		case f.Message == "":
			return e.judgeUninjected(ctx, pod, restart)
		}
		return e.leftOutOf(ctx, pod, &c, restart,
			fail(e.cloud.unset, "", "the webhook has not changed the container %q%s", shown(c.Name), f.Message))
	}
	return fail(e.cloud.unset, "correct the name", "the pod has no such container").
		with(differs("container", e.Container, strings.Join(names, ", ")))
}

// judgeContainer is Skip for a container without an identity; the message says why.
func (e *examination) judgeContainer(pod *corev1.Pod, c *corev1.Container, audiences []string, restart string) Finding {
	where := fmt.Sprintf("the container %q", shown(c.Name))
	if f, hidden := e.hiddenIn(pod, c, where); hidden {
		return f
	}
	file := variableOf(pod, c, e.cloud.tokenFile)
	switch {
	case e.podIdentity && variableOf(pod, c, endpointVariable).set:
		return e.judgeRest(pod, c, where, pass("%s", byPodIdentity))
	case !file.set && mayBring(c, e.cloud.tokenFile):
		return unknownEnvFrom(where, e.cloud.tokenFile)
	case !file.set:
		return skip(e.whyWithout(pod, c))
	}
	for _, own := range e.wantedVariables() {
		if f, wrong := e.judgeVariable(pod, c, where, own, restart); wrong {
			return f
		}
	}
	if f, wrong := e.judgeMount(pod, c, where, file, audiences); wrong {
		return f
	}
	return e.judgeRest(pod, c, where, pass("the identity is mounted: %s", shown(firstOf(file.value, "by "+e.cloud.tokenFile))))
}

// hiddenIn looks for what all SDKs prefer.
func (e *examination) hiddenIn(pod *corev1.Pod, c *corev1.Container, where string) (Finding, bool) {
	for _, name := range e.cloud.hiding {
		v := variableOf(pod, c, name)
		if !v.set {
			continue
		}
		f := fail(e.cloud.unset, "remove "+name+" from the container's environment in the pod's template",
			"%s in %s hides the identity of the ServiceAccount", name, where).with(differs(name, "set", "not set"))
		if v.optional {
			f.Result, f.Message = Warn, f.Message+", if what it refers to exists"
		}
		return f, true
	}
	return Finding{}, false
}

// judgeRest is about what only some SDKs look at, and what cannot be seen from outside.
func (e *examination) judgeRest(pod *corev1.Pod, c *corev1.Container, where string, good Finding) Finding {
	if v := variableOf(pod, c, sessionVariable); e.Provider.GetName() == "aws" && v.set && v.known && !isSessionName(v.value) {
		return e.badSession(v.value, where)
	}
	for _, name := range e.cloud.doubtful {
		if variableOf(pod, c, name).set {
			return e.doubt(name, where)
		}
	}
	if e.InPod && len(pod.Spec.Containers) == 1 {
		return good // check 1 has looked at the environment itself
	}
	for _, name := range e.cloud.hiding {
		if mayBring(c, name) {
			return unknownEnvFrom(where, name)
		}
	}
	return good
}

func unknownEnvFrom(where, name string) Finding {
	return unknown("what envFrom brings into "+where+" is not looked at, and "+name+" may be in it",
		"run wid doctor in the pod").with(same("envFrom", "of "+where))
}

// wanted is a variable that the SDK needs beside the token file, with what it should be. Empty: anything.
type wanted struct{ name, what, annotation, value string }

func (e *examination) wantedVariables() []wanted {
	annotations := e.inCluster().Annotations
	all := []wanted{{e.cloud.identity, "identity", e.cloud.required, annotations[e.cloud.required]}}
	if e.cloud.tenant != "" {
		all = append(all, wanted{e.cloud.tenant, "tenant", tenantAnnotation, annotations[tenantAnnotation]})
	}
	return all
}

func (e *examination) judgeVariable(pod *corev1.Pod, c *corev1.Container, where string, own wanted,
	restart string) (Finding, bool) {
	got := variableOf(pod, c, own.name)
	switch {
	case !got.set && mayBring(c, own.name):
		return unknownEnvFrom(where, own.name), true
	case !got.set:
		return fail(e.cloud.unset, "set "+own.name+" in the pod's template beside "+e.cloud.tokenFile+
			", or neither of them: then the webhook does",
			"%s has a token file without %s", where, own.name).with(differs(own.name, "", firstOf(own.value, "set"))), true
	case !got.known:
		return unknown(own.name+" of "+where+" is not a plain value, and cannot be read here", "run wid doctor in the pod"), true
	case own.value == "" || e.alike(got.value, own.value):
		return Finding{}, false
	}
	if at := e.annotatedAt(); !at.IsZero() && at.Before(pod.CreationTimestamp.Time) {
		return Finding{Result: Warn, Class: e.cloud.unset,
			Remedy: "remove " + own.name + " from the pod's template, unless that is meant",
			Message: where + " uses another " + own.what + " than the annotation says, " +
				"which is older than the pod: it was set by hand"}.
			with(differs(own.name, got.value, own.value)), true
	}
	return fail(e.cloud.unset, "restart the pod; if it stays, remove "+own.name+" from the pod's template:\n"+restart,
		"%s uses another %s than the annotation says", where, own.what).with(differs(own.name, got.value, own.value)), true
}

// whyWithout is what leaves a container without an identity.
func (e *examination) whyWithout(pod *corev1.Pod, c *corev1.Container) string {
	switch {
	case leftOut(pod, e.cloud.skipKey, c.Name):
		return " (" + e.cloud.skipKey + " leaves it out)"
	case e.Provider.GetName() == "aws" && variableOf(pod, c, e.cloud.identity).set:
		return " (" + e.cloud.identity + " was set by hand, for which the webhook leaves it alone)"
	}
	return ""
}

// leftOutOf says what to do about what whyWithout has found, and whether that will be enough.
func (e *examination) leftOutOf(ctx context.Context, pod *corev1.Pod, c *corev1.Container, restart string, f Finding) Finding {
	remedy := "remove " + e.cloud.identity + " from the container's environment in the pod's template"
	if leftOut(pod, e.cloud.skipKey, c.Name) {
		remedy = fmt.Sprintf("take %s out of the annotation %s in the pod's template", shell.Word(c.Name, "CONTAINER"), e.cloud.skipKey)
		f = f.with(Field{Name: e.cloud.skipKey, Observed: exactly(pod.Annotations[e.cloud.skipKey]),
			Expected: exactly("without " + c.Name), Differs: true})
	}
	f.Remedy = remedy + ", and restart the pod:\n" + restart
	if found, err := e.injectors(ctx, pod); err == nil && len(found) == 0 && !e.managed() && !hasAny(pod, e.cloud.tokenFile) {
		f.Message += "; and there is no webhook in this cluster"
		f.Remedy = remedy + "\n" + e.install() + "\n" + restart
	}
	return f.with(differs(e.cloud.tokenFile, "", "set by the webhook"))
}

// leftOut reads the list of containers in an annotation of the pod, which one webhook separates with commas, the other with
// semicolons.
func leftOut(pod *corev1.Pod, key, name string) bool {
	if key == "" {
		return false
	}
	list := strings.FieldsFunc(pod.Annotations[key], func(r rune) bool { return r == ',' || r == ';' })
	return slices.ContainsFunc(list, func(one string) bool { return strings.TrimSpace(one) == name })
}
