package doctor

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/shell"
)

// judgeAnnotations is about what the ServiceAccount is annotated with in the cluster.
func (e *examination) judgeAnnotations(sa *corev1.ServiceAccount) Finding {
	if m := e.cloud.nearMiss(sa.Annotations, sa.Labels); m.wrote != "" {
		f := fail(e.cloud.unset, e.annotating(sa, assigned(m.key, m.value)), "%q looks like %q", shown(m.wrote), m.meant)
		return f.with(differs("annotation", m.wrote, m.meant))
	}
	if f, other := e.judgeAdopted(sa); other {
		return f
	}
	if e.cloud.required != "" && sa.Annotations[e.cloud.required] == "" {
		f := fail(e.cloud.unset, e.annotating(sa, e.cloud.required+"=VALUE"), "the annotation %s is missing", e.cloud.required)
		f = f.with(differs(e.cloud.required, "", e.cloud.requiredValue()))
		return e.withOthers(e.withMisplaced(f, sa), sa)
	}
	var fields []Field
	for _, key := range e.cloud.annotations {
		if value, ok := sa.Annotations[key]; ok {
			fields = append(fields, same(key, value))
		}
	}
	if len(fields) == 0 {
		return e.withOthers(pass("it exists"), sa)
	}
	return pass("annotated with %s", fields[0].Observed).with(fields...)
}

func (e *examination) annotating(sa *corev1.ServiceAccount, words string) string {
	return fmt.Sprintf("kubectl annotate serviceaccount -n %s %s --overwrite %s", namespaceOf(sa), nameOf(sa), words)
}

// assigned is key=value as kubectl annotate wants it.
func assigned(key, value string) string { return key + "=" + shell.Word(value, "VALUE") }

// requiredValue says what the required annotation holds.
func (c *cloud) requiredValue() string {
	if c.required == cloudOf("azure").required {
		return "the client ID of the identity"
	}
	return "the ARN of the role"
}

// withMisplaced finds what the ServiceAccount lacks on the pod, where no webhook looks for it.
func (e *examination) withMisplaced(f Finding, sa *corev1.ServiceAccount) Finding {
	if e.pod == nil || e.podErr != nil {
		return f
	}
	key, value := e.cloud.required, e.pod.Annotations[e.cloud.required]
	if m := e.cloud.nearMiss(e.pod.Annotations, e.pod.Labels); value == "" && m.key == e.cloud.required {
		key, value = m.wrote, m.value
	}
	if value == "" {
		return f
	}
	f.Message += fmt.Sprintf(" on the ServiceAccount; the pod has %s, where it has no effect", shown(key))
	f.Remedy = e.annotating(sa, assigned(e.cloud.required, value))
	return f.with(same("on the pod", key+"="+value))
}

// judgeAdopted compares what a pod's environment says with the annotations. That may have been set by hand, which the webhooks
// leave as it is; and it is what the pod's programs go by.
func (e *examination) judgeAdopted(sa *corev1.ServiceAccount) (Finding, bool) {
	if e.adopted == "" {
		return Finding{}, false
	}
	for _, key := range e.cloud.annotations {
		got, want := e.Annotations[key], sa.Annotations[key]
		switch {
		case got == "" || got == want || e.Provider.GetName() == "azure" && strings.EqualFold(got, want):
		case want != "":
			return Finding{Result: Warn, Class: e.cloud.unset, Remedy: "restart the pod; if it stays, its template has the variable",
				Message: e.adopted + " says otherwise than the annotation " + key}.with(differs(key, want, got)), true
		case key == e.cloud.required:
			f := unknown("the annotation "+key+" is missing, though "+e.adopted+" has it: a pod that starts now may not get it",
				"unless the variables are in the pod's template:\n"+e.annotating(sa, assigned(key, got))).with(differs(key, "", got))
			return e.withOthers(f, sa), true
		}
	}
	return Finding{}, false
}

// withOthers names annotations that are meant for other clouds.
func (e *examination) withOthers(f Finding, sa *corev1.ServiceAccount) Finding {
	for _, provider := range []string{"aws", "azure", "gcp"} {
		if other := cloudOf(provider); provider != e.Provider.GetName() {
			for _, key := range other.annotations {
				if value := sa.Annotations[key]; value != "" {
					f.Message += fmt.Sprintf("; it is annotated for %s: %s", other.name, key)
					f = f.with(same("for "+other.name, key+"="+value))
					break
				}
			}
		}
	}
	return f
}

// wrongAudienceAnnotation finds an audience in the annotation that this cloud cannot have been meant to get: the token is made
// to fit it, so that only the cloud would refuse.
func (e *examination) wrongAudienceAnnotation() (Finding, bool) {
	key, sa := e.cloud.audienceKey, e.inCluster()
	got, ok := sa.Annotations[key]
	if key == "" || !ok || got == e.cloud.audience {
		return Finding{}, false
	}
	why, near, tentative := "", e.nearAudience(got), false
	switch other := e.foreignAudience(got); {
	case visible(got) == "":
		why = "has nothing in it"
	case visible(got) != got:
		why = "has blanks, or characters that nobody sees"
	case other != "":
		why = "is the audience of " + other
	case isAPIServer(got):
		why = "is the audience of the API server"
	case strings.EqualFold(got, e.cloud.audience):
		why = "differs in upper and lower case only"
	case near != "":
		why, tentative = "is nearly "+near, true // the cloud may accept it
	default:
		return Finding{}, false
	}
	f := fail(e.cloud.wrongAudience, e.correctAudience(), "the annotation %s %s", key, why).
		with(differs(key, got, firstOf(near, e.cloud.audience)))
	f.tentative = tentative
	return f, true
}

// foreignAudience names the other cloud that an audience belongs to, "" if none is known.
func (e *examination) foreignAudience(audience string) string {
	for _, provider := range []string{"aws", "azure", "gcp"} {
		other := cloudOf(provider)
		prefix, _, _ := strings.Cut(other.audience, "<")
		if provider != e.Provider.GetName() && strings.HasPrefix(visible(audience), prefix) {
			return other.name
		}
	}
	return ""
}
