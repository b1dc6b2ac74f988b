package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/workloadid/workloadid/auth"
)

// Check 9. The provider itself judges the names; what people mix up most gets a class of its own.
func (e *examination) checkIdentifiers(ctx context.Context) Finding {
	if e.podIdentity {
		return skip(byPodIdentity)
	}
	opts := e.resolved()
	if v, ok := e.Provider.(auth.OptionsValidator); ok {
		if err := v.ValidateOptions(opts); err != nil {
			return e.refused(err)
		}
	}
	if e.nameless() {
		return e.unnamed()
	}
	if e.own() {
		return e.checkTargets(opts, pass("the options are well formed"))
	}
	sa := e.serviceAccount()
	if e.Client != nil && e.read != nil && len(e.Annotations) == 0 {
		return Finding{Result: Skip, Needs: 14, Message: "skipped: needs check 14"}
	}
	identity, err := e.Provider.GetIdentity(sa, opts)
	if err == nil && len(opts.Audiences) == 0 {
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		_, err = e.Provider.GetAudiences(bounded, sa, opts)
	}
	if f, wrong := e.wrongAudienceAnnotation(); wrong && err != nil {
		f.tentative = false // nothing can be tried
		return f
	}
	if err != nil && e.unseen() {
		e.blocked[9] = 9 // what depends on names is not tried without them
		return e.notLookedAt()
	}
	if err != nil {
		return e.explainMissing(e.withoutProvider(e.refused(err)))
	}
	if identity == "" {
		return e.checkTargets(opts, pass("no identity needs to be named"))
	}
	return e.checkTargets(opts, pass("well formed: %s", shown(identity)).with(same("identity", identity)))
}

// unseen says that nobody has looked at the ServiceAccount's annotations.
func (e *examination) unseen() bool {
	return e.account.Name == "" && e.adopted == "" && len(e.Annotations) == 0
}

func (e *examination) notLookedAt() Finding {
	sa, keys := e.serviceAccount(), []string{e.cloud.required}
	switch e.Provider.GetName() {
	case "azure":
		keys = append(keys, tenantAnnotation)
	case "gcp":
		keys = []string{"gcp.auth.fluxcd.io/workload-identity-provider"}
	}
	remedy := "pass --kubeconfig, or else the ServiceAccount's annotations:"
	for _, key := range keys {
		remedy += " --annotation " + key + "=VALUE"
	}
	return unknown("the ServiceAccount's annotations were not looked at, so who to be is not known", remedy+
		fmt.Sprintf("\nkubectl get serviceaccount -n %s %s -o jsonpath='{.metadata.annotations}'", namespaceOf(sa), nameOf(sa)))
}

// refused is refusal for what is judged without asking anybody, or the metadata server only.
func (e *examination) refused(err error) Finding {
	f := refusal(err)
	if f.Class == "" {
		f.Class = e.cloud.badIdentifier
	}
	if errors.Is(err, auth.ErrMisconfigured) || errors.Is(err, auth.ErrDenied) {
		f.Result = Fail
	}
	f.Causes = nil // the message says which it is
	return f
}

// explainMissing names the key that somebody wrote instead.
func (e *examination) explainMissing(f Finding) Finding {
	account := e.serviceAccount()
	m := e.cloud.nearMiss(account.Annotations, account.Labels)
	if m.wrote == "" {
		if e.cloud.required != "" && account.Annotations[e.cloud.required] == "" {
			return e.withOthers(e.withMisplaced(f, account), account)
		}
		return f
	}
	f.Result, f.Class = Fail, e.cloud.unset
	f.Message += fmt.Sprintf("; %q looks like %q", shown(m.wrote), m.meant)
	f.Remedy = e.annotating(account, assigned(m.key, m.value))
	return f.with(differs("annotation", m.wrote, m.meant))
}

// checkTargets looks at the names of registry and cluster.
func (e *examination) checkTargets(opts *auth.Options, ok Finding) Finding {
	if r, can := e.Provider.(auth.ArtifactRegistryCredentialsProvider); can && e.Repository != "" {
		if _, err := r.ParseArtifactRepository(e.Repository, opts); err != nil {
			f := e.refused(err)
			f.Class = firstOf(classOfRegistry(e.Provider.GetName()), f.Class)
			return f
		}
	}
	if c, can := e.Provider.(auth.RESTConfigProvider); can && e.Cluster != "" {
		o := *opts
		o.ClusterResource = e.Cluster
		if _, err := c.GetAccessTokenOptionsForCluster(&o); err != nil {
			f := e.refused(err)
			f.Class = firstOf(classOfCluster(e.Provider.GetName()), f.Class)
			return f
		}
	}
	return ok
}

func classOfRegistry(provider string) string {
	return map[string]string{"aws": "A16", "azure": "Z17", "gcp": "G17"}[provider]
}

func classOfCluster(provider string) string {
	return map[string]string{"aws": "A18", "azure": "Z18", "gcp": "G18"}[provider]
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
