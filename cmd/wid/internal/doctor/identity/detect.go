package identity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// Detect reads the ServiceAccount while config.Provider is unset. It returns
// the ServiceAccount if clouds finds a cloud in its annotations, otherwise a
// report with one finding.
func Detect(ctx context.Context, config Config,
	clouds func(*corev1.ServiceAccount) []string) (*corev1.ServiceAccount, *doctor.Report) {
	e := newExamination(ctx, config)
	x := config.Examination
	x.Subject, x.Checks, x.Secrets = e.subject(), e.checks()[:1], func() []string { return e.secrets }
	x.Checks[0].Run = func(ctx context.Context) doctor.Finding { return e.detect(ctx, clouds) }
	report := doctor.Run(ctx, x)
	if report.Result == doctor.Pass {
		return e.serviceAccount(), nil
	}
	return nil, report
}

func (e *examination) detect(ctx context.Context, clouds func(*corev1.ServiceAccount) []string) doctor.Finding {
	account, pod := e.readAccount(ctx), e.readPod(ctx)
	switch {
	case pod != nil && pod.err != nil && account == nil:
		return e.unreadablePod(pod.err)
	case account.err != nil:
		return e.unreadableAccount(ctx, account.err)
	case len(clouds(e.serviceAccount())) > 0:
		return doctor.Passed("ServiceAccount %s names its cloud.", e.key())
	}
	return e.lacksCloud(e.serviceAccount().Annotations)
}

// lacksCloud shows the annotations, one of which may be misspelt. The remedy
// names the clouds whose prefix an annotation has, otherwise all.
func (e *examination) lacksCloud(annotations map[string]string) doctor.Finding {
	var keys, alike, all, has []string
	names := slices.Sorted(maps.Keys(annotations))
	for _, name := range []string{"aws", "azure", "gcp"} {
		s := cloudNamed(name).settings[0]
		domain, _, _ := strings.Cut(s.annotation, "/")
		command := e.annotation(s.annotation, s.example)
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, domain+"/") }) {
			alike = append(alike, command)
		}
		keys, all = append(keys, s.annotation), append(all, command)
	}
	if len(alike) == 0 {
		alike = all
	}
	for _, name := range names {
		if name != corev1.LastAppliedConfigAnnotation {
			has = append(has, fmt.Sprintf("%.100q: %.100q", name, annotations[name]))
		}
	}
	return doctor.Failed(cause.IdentityNotConfigured,
		doctor.Do("Name the provider with --provider, or annotate the ServiceAccount:", alike...),
		"ServiceAccount %s has no annotation of a cloud.", e.key()).
		Compare("annotations", cmp.Or(strings.Join(has, ", "), "none"), "expected", "one of "+strings.Join(keys, ", "))
}
