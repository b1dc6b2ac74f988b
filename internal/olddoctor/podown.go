package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
)

// podsOwn is what the container of a pod has of its own: values by hand, or of annotations that have changed since.
type podsOwn struct {
	// container is the one whose values these are.
	container string
	// tried are the values that the exchange is tried with, untried those that it cannot be tried with.
	tried, untried []Field
	// audiences are those that it would be tried with otherwise. Nil: it is.
	audiences []string
	// several are containers that differ in what is theirs, if the caller has named none.
	several []string
}

// adoptSpecification has the exchange tried with what a pod's specification says: its programs go by that, and not by the
// annotations.
func (e *examination) adoptSpecification(ctx context.Context) {
	if e.account.Name == "" || e.cloud.tokenFile == "" || e.adopted != "" {
		return
	}
	if _, wrong := e.wrongAccount(e.pod); wrong {
		return
	}
	audiences, err := e.wantedAudiences(ctx)
	if err != nil {
		audiences = nil // check 9 tells
	}
	c := e.containerToTry(audiences)
	if c == nil {
		return
	}
	e.podsOwn.container = c.Name
	e.adoptVariables(c)
	e.adoptAudience(c, audiences)
}

// containerToTry is the one that was named or, of all that have a token file, the first that differs from the annotations.
func (e *examination) containerToTry(audiences []string) *corev1.Container {
	candidates := lasting(e.pod)
	if e.Container != "" {
		candidates = append(candidates, passing(e.pod)...)
	}
	candidates = slices.DeleteFunc(candidates, func(c corev1.Container) bool {
		return e.Container != "" && c.Name != e.Container || !variableOf(e.pod, &c, e.cloud.tokenFile).set
	})
	if len(candidates) == 0 {
		return nil
	}
	values := make([]string, 0, len(candidates))
	best := -1
	for i := range candidates {
		text, differs := e.valuesOf(&candidates[i], audiences)
		if values = append(values, text); differs && best < 0 {
			best = i
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(values)))) > 1 {
		for i := range candidates {
			e.podsOwn.several = append(e.podsOwn.several, candidates[i].Name)
		}
	}
	return &candidates[max(best, 0)]
}

// valuesOf are a container's own values as one text, to compare them with those of others.
func (e *examination) valuesOf(c *corev1.Container, audiences []string) (text string, differs bool) {
	for _, w := range e.wantedVariables() {
		v := variableOf(e.pod, c, w.name)
		value := v.value
		if e.Provider.GetName() == "azure" {
			value = strings.ToLower(value)
		}
		text += fmt.Sprintf("%t %t %q ", v.set, v.known, value)
		differs = differs || v.known && v.set && !e.alike(value, w.value)
	}
	if source := e.mounted(c, audiences); source != nil {
		text += fmt.Sprintf("%q", source.Audience)
		differs = differs || len(audiences) > 0 && source.Audience != audiences[0]
	}
	return text, differs
}

func (e *examination) alike(a, b string) bool {
	return a == b || e.Provider.GetName() == "azure" && strings.EqualFold(a, b)
}

// adoptVariables takes over who to be.
func (e *examination) adoptVariables(c *corev1.Container) {
	values := map[string]string{}
	for _, w := range e.wantedVariables() {
		if v := variableOf(e.pod, c, w.name); v.set && v.known && !e.alike(v.value, w.value) {
			values[w.annotation] = v.value
			e.podsOwn.tried = append(e.podsOwn.tried, differs(w.name, v.value, firstOf(w.value, "no annotation")))
		}
	}
	if len(values) > 0 {
		e.Annotations, e.adopted = values, "the pod's specification"
		e.useAnnotations()
	}
}

// adoptAudience has the token asked for as the pod's volume does, if that is nobody else's audience.
func (e *examination) adoptAudience(c *corev1.Container, audiences []string) {
	source := e.mounted(c, audiences)
	if source == nil || len(audiences) == 0 || slices.Equal(audiences, []string{source.Audience}) {
		return
	}
	field := differs("audience", firstOf(source.Audience, "none: the API server's"), strings.Join(audiences, " "))
	if !e.mayTry(source.Audience, audiences) {
		e.podsOwn.untried = append(e.podsOwn.untried, field)
		return
	}
	e.podsOwn.tried, e.podsOwn.audiences = append(e.podsOwn.tried, field), audiences
	e.Options = append(slices.Clone(e.Options), auth.WithAudiences(source.Audience))
}

// mayTry says that a token with the audience can be had, and may be sent to the cloud. One that others accept stays here.
func (e *examination) mayTry(audience string, wanted []string) bool {
	opts := e.resolved()
	held := e.token.raw == "" && e.TokenFile == "" ||
		e.token.claims != nil && slices.Equal(e.token.claims.Audience, []string{audience})
	return held && len(opts.Audiences) == 0 && !e.surelyWrong(audience, wanted) &&
		(opts.Policy.AllowAnyAudience || slices.Contains(opts.Policy.Audiences, audience))
}

// surelyWrong knows audiences that are another service's; others the cloud may have been told to accept.
func (e *examination) surelyWrong(got string, wanted []string) bool {
	return got == "" || isAPIServer(got) || visible(got) == visible(wanted[0]) || e.foreignAudience(got) != ""
}

// judgeSeveral is for containers that differ, of which only one was tried.
func (e *examination) judgeSeveral(f Finding) Finding {
	if len(e.podsOwn.several) == 0 || f.Result == Fail {
		return f
	}
	names := shown(strings.Join(e.podsOwn.several, ", "))
	return unknown(fmt.Sprintf("the containers %s have identities or audiences of their own, which differ; the exchange is "+
		"tried with those of %q only", names, shown(e.podsOwn.container)), nameContainer).with(f.Fields...)
}

// tellOwn has the checks of the exchange say what they were tried with. An exchange with something else than what the pod has
// shows nothing of the pod; one that fails with what the pod has makes a doubt about that a failure.
func (e *examination) tellOwn(r *Report) {
	exchange, pod := r.Of("exchange"), r.Of("pod")
	if exchange == nil || pod == nil || exchange.Result == Skip || len(e.podsOwn.tried)+len(e.podsOwn.untried) == 0 {
		return
	}
	where := fmt.Sprintf("the container %q", shown(e.podsOwn.container))
	for _, id := range []string{"exchange", "identity"} {
		f := r.Of(id)
		if f == nil || f.Result == Skip {
			continue
		}
		if len(e.podsOwn.tried) > 0 {
			f.Message += "; tried with " + fieldNames(e.podsOwn.tried) + " of " + where + ", not what the annotations say"
		}
		if len(e.podsOwn.untried) > 0 {
			f.Message += "; tried without the " + fieldNames(e.podsOwn.untried) + " of " + where
		}
		*f = f.with(append(slices.Clone(e.podsOwn.tried), e.podsOwn.untried...)...).printable()
	}
	switch {
	case exchange.Result == Pass && len(e.podsOwn.untried) > 0 && pod.Result != Fail:
		exchange.Result, exchange.Remedy = Unknown, "see check 15"
	case exchange.Result == Pass && e.podsOwn.audiences != nil:
		if f := r.Of("audience"); f != nil && f.Result == Warn {
			f.Result, f.Class, f.Remedy = Pass, "", ""
			f.Message = "the exchange shows that " + e.cloud.name + " takes the audience that the pod's volume has"
		}
	case exchange.Result == Fail && (pod.Result == Warn || pod.Result == Fail) && len(pod.Fields) > 0 &&
		slices.ContainsFunc(e.podsOwn.tried, func(t Field) bool { return t.Name == pod.Fields[0].Name }):
		pod.Result = Fail
		pod.Message += "; the exchange fails with it"
		exchange.Remedy = "see check 15: no cloud is to trust what was not meant" // the cloud need not be what is wrong
	}
}

func fieldNames(fields []Field) string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}
