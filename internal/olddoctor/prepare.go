package doctor

import (
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
)

// mint is an attempt to have the API server create a token.
type mint struct {
	tried     bool
	err       error
	audiences []string
	asked     time.Duration
	granted   time.Time
}

// prepare finds the token and the ServiceAccount. What goes wrong is told by the checks.
func (e *examination) prepare(ctx context.Context) {
	e.adoptPod(ctx)
	switch {
	case e.Token != "":
		e.token = newHeldToken(e.Token, "the caller")
	case e.TokenFile != "":
		if content, err := readToken(ctx, e.TokenFile); err == nil {
			e.token = newHeldToken(content, e.TokenFile)
		}
	}
	e.adoptAccount(ctx)
	e.readServiceAccount(ctx)
	e.readPod(ctx)
	if e.token.raw == "" && e.TokenFile == "" && e.Client != nil && e.account.Name != "" {
		e.mint(ctx)
	}
}

// adoptPod takes over what the webhook has put into the environment of this very pod.
func (e *examination) adoptPod(ctx context.Context) {
	if !e.InPod || e.ServiceAccount.Name != "" || e.Token != "" {
		return
	}
	if e.TokenFile == "" && e.cloud.tokenFile != "" {
		e.TokenFile = e.Getenv(e.cloud.tokenFile)
	}
	e.adoptGoogleFile(ctx)
	if e.Annotations != nil || e.cloud.required == "" {
		return
	}
	e.Annotations, e.adopted = map[string]string{}, "the environment of the pod"
	if id := e.Getenv(e.cloud.identity); id != "" {
		e.Annotations[e.cloud.required] = id
	}
	if e.cloud.tenant != "" {
		if tenant := e.Getenv(e.cloud.tenant); tenant != "" {
			e.Annotations[tenantAnnotation] = tenant
		}
	}
}

// adoptAccount takes the ServiceAccount from the pod, where a pod is all that was named.
func (e *examination) adoptAccount(ctx context.Context) {
	if !e.nameless() || e.Client == nil {
		return
	}
	e.fetchPod(ctx, e.Pod)
	if e.podErr == nil {
		e.ServiceAccount = client.ObjectKey{Namespace: e.Pod.Namespace, Name: firstOf(e.pod.Spec.ServiceAccountName, "default")}
	}
}

func (e *examination) readServiceAccount(ctx context.Context) {
	known := e.serviceAccount()
	key := client.ObjectKeyFromObject(known)
	if e.Client == nil || key.Name == "" || key.Namespace == "" {
		return
	}
	if e.read = readObject(ctx, e.Reader, "v1", "ServiceAccount", key, &e.account); e.read != nil {
		e.account.Name = "" // what the caller says stays
		return
	}
	e.account.Name, e.account.Namespace = key.Name, key.Namespace
	if e.InPod && len(e.Annotations) > 0 {
		e.adopted = firstOf(e.adopted, "the caller")
		e.useAnnotations()
	}
}

// useAnnotations has those of a pod's environment take precedence: they are what its programs go by.
func (e *examination) useAnnotations() {
	e.declared = e.account.DeepCopy()
	if e.account.Annotations == nil {
		e.account.Annotations = map[string]string{}
	}
	maps.Copy(e.account.Annotations, e.Annotations)
}

// mint asks for what the exchange would ask for.
func (e *examination) mint(ctx context.Context) {
	var err error
	opts := e.resolved()
	audiences := opts.Audiences
	if len(audiences) == 0 {
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		defer waiting(bounded, "the audience of "+e.cloud.name)()
		if audiences, err = e.Provider.GetAudiences(bounded, e.serviceAccount(), opts); err != nil {
			return // the check of identifiers tells
		}
	}
	e.minted = mint{tried: true, audiences: audiences, asked: opts.TokenLifetime}
	if e.minted.asked == 0 {
		if p, ok := e.Provider.(auth.TokenLifetimeProvider); ok {
			e.minted.asked, _ = p.GetTokenLifetime(e.serviceAccount(), opts) // told by the exchange
		}
	}
	if e.minted.asked == 0 {
		e.minted.asked = time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	type requested struct {
		raw     string
		granted time.Time
		err     error
	}
	request := auth.TokenRequest{Client: e.Client, ServiceAccount: e.serviceAccount().DeepCopy(), Lifetime: e.minted.asked,
		BoundObject: opts.BoundObject}
	answer := ending(ctx, e.apiServer(), func() (r requested) {
		r.raw, r.granted, r.err = request.Token(ctx, audiences)
		return r
	}, func(err error) requested {
		return requested{err: &auth.Error{Reason: auth.ErrUnavailable, Err: err, Message: "the API server has not answered the TokenRequest in time",
			Remedy: "see that the API server runs, and that the kubeconfig and the network lead to it: kubectl get --raw /version"}}
	})
	if answer.err != nil {
		e.minted.err = answer.err
		return
	}
	e.minted.granted = answer.granted
	e.token = newHeldToken(answer.raw, "a TokenRequest")
}

// noToken is the finding of checks that have no token to look at.
func (e *examination) noToken() (Finding, bool) {
	switch {
	case e.token.claims != nil:
		return Finding{}, false
	case e.token.err != nil:
		return Finding{Result: Skip, Needs: 3, Message: "skipped: needs check 3"}, true
	case e.nameless():
		return e.unnamed(), true
	case e.own():
		return skip("the program's own identity is examined, which has no token of a ServiceAccount"), true
	case e.minted.err != nil:
		return Finding{Result: Skip, Needs: 16, Message: "skipped: there is no token, see check 16"}, true
	case e.read != nil:
		return Finding{Result: Skip, Needs: 14, Message: "skipped: there is no token, see check 14"}, true
	case e.Client == nil && e.TokenFile == "":
		return unknown("there is no token to look at", "pass a token file, or access to the cluster"), true
	}
	return Finding{Result: Skip, Needs: 9, Message: "skipped: there is no token, see checks 2 and 9"}, true
}

func isPermission(err error) bool { return errors.Is(err, os.ErrPermission) }

// subjectOf is the sub claim of a ServiceAccount.
func subjectOf(key types.NamespacedName) string {
	return strings.Join([]string{"system:serviceaccount", key.Namespace, key.Name}, ":")
}
