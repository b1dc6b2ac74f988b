package identity

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/kubeerror"
)

func (e *examination) checkServiceAccount(ctx context.Context) doctor.Finding {
	account := e.readAccount(ctx)
	switch {
	case e.own() || e.key().Name == "" && e.token.claims == nil:
		return doctor.Skipped("No ServiceAccount was named.")
	case account != nil && account.err != nil &&
		(apierrors.IsNotFound(account.err) || e.annotationsUnknown() || e.Token == nil):
		return e.unreadableAccount(ctx, account.err)
	case e.annotationsUnknown():
		return doctor.Unclear(doctor.Do("Pass --kubeconfig, or the annotation: --annotation "+
			e.missingKey(e.serviceAccount())+"=VALUE"), "The annotations of the ServiceAccount are unknown.")
	case e.usesAgent():
		return doctor.Passed(byAgent)
	}
	return e.checkAnnotations(ctx, e.serviceAccount())
}

func (e *examination) unreadableAccount(ctx context.Context, err error) doctor.Finding {
	switch {
	case apierrors.IsNotFound(err):
		return doctor.Failed(cause.ServiceAccountNotFound, doctor.Do("Correct namespace and name. "+e.isMeant(), contexts),
			"ServiceAccount %s does not exist.", e.key())
	case apierrors.IsForbidden(err):
		return e.missingRight(ctx, "You may not read ServiceAccount %s: %s.", e.key(),
			strings.TrimRight(kubeerror.Message(err, e.secrets...), "."))
	}
	return e.unreadable("ServiceAccount "+e.key().String(), err,
		e.query().Fill("kubectl get sa -n NAMESPACE SERVICE_ACCOUNT"))
}

// annotationsUnknown reports that the identity was not read, so nothing can be
// exchanged.
func (e *examination) annotationsUnknown() bool {
	return e.Annotations == nil && e.injected == nil && e.cloud.trustsIssuers() &&
		(e.account == nil || e.account.err != nil)
}

// unreadable is the finding of an object that could not be looked at. The
// command shows the same to the reader.
func (e *examination) unreadable(what string, err error, command string) doctor.Finding {
	if apierrors.IsUnauthorized(err) {
		return doctor.Failed(cause.LoginRefused,
			doctor.Do("Log in again with the program that your kubeconfig names. In a pod, restart it."),
			"The API server refuses your credentials (401).")
	}
	return doctor.Unclear(doctor.Do("Check that this works:", command), "%s cannot be read: %s.", what,
		strings.TrimRight(kubeerror.Message(err, e.secrets...), "."))
}

// checkAnnotations finds out whether the provider accepts the annotations, and
// why not.
func (e *examination) checkAnnotations(ctx context.Context, sa *corev1.ServiceAccount) doctor.Finding {
	opts := e.resolved()
	identity, err := e.Provider.GetIdentity(sa, opts)
	if err == nil && len(opts.Audiences) == 0 {
		_, err = e.Provider.GetAudiences(ctx, sa, opts)
	}
	var known *auth.Error
	switch key := e.missingKey(sa); {
	case err == nil && identity == "":
		return doctor.Passed("ServiceAccount %s needs no identity in an annotation.", e.key())
	case err == nil:
		return doctor.Passed("ServiceAccount %s names %s.", e.key(), identity)
	case key != "" && errors.As(err, &known) &&
		(known.Cause == provider.CauseIdentityMissing || known.Cause == provider.CauseMetadataServer):
		return doctor.Failed(cause.IdentityNotConfigured, doctor.Do("Annotate it:", e.annotating(key)),
			"ServiceAccount %s lacks the annotation %s.", e.key(), key)
	}
	return e.refusal("The metadata server", err)
}

// missingKey returns the annotation that the provider needs and the
// ServiceAccount lacks.
func (e *examination) missingKey(sa *corev1.ServiceAccount) string {
	for _, s := range e.cloud.settings {
		if sa.Annotations[s.annotation] == "" {
			return s.annotation
		}
	}
	return ""
}

func (e *examination) annotating(key string) string {
	value := "NAME@PROJECT_ID.iam.gserviceaccount.com" // of annotation.GCPServiceAccount
	for _, s := range e.cloud.settings {
		if s.annotation == key {
			value = s.example
		}
	}
	return e.annotation(key, value)
}

// annotation returns the command that sets an annotation of the ServiceAccount.
func (e *examination) annotation(key, value string) string {
	return e.query().Fill("kubectl annotate sa -n NAMESPACE SERVICE_ACCOUNT --overwrite ") + key + "=" + value
}
