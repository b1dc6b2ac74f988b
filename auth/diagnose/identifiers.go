package diagnose

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
		return f
	}
	if err != nil {
		return e.explainMissing(e.withoutProvider(e.refused(err)))
	}
	if identity == "" {
		return e.checkTargets(opts, pass("no identity needs to be named"))
	}
	return e.checkTargets(opts, pass("well formed: %s", shown(identity)).with(same("identity", identity)))
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
	wrote, meant := e.cloud.nearMiss(account.Annotations, account.Labels)
	if wrote == "" {
		if e.cloud.required != "" && account.Annotations[e.cloud.required] == "" {
			return e.withOthers(f, account)
		}
		return f
	}
	f.Result, f.Class = Fail, e.cloud.unset
	f.Message += fmt.Sprintf("; %q looks like %q", shown(wrote), meant)
	f.Remedy = e.annotating(account, strings.TrimSuffix(meant, " (an annotation)")+"=VALUE")
	return f.with(differs("annotation", wrote, meant))
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
