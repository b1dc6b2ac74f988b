package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/authcause"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/shell"
)

func (e *examination) checkServiceAccount(ctx context.Context) doctor.Finding {
	account := e.readAccount(ctx)
	switch {
	case e.own() || e.key().Name == "" && e.token.claims == nil:
		return doctor.Skipped("No ServiceAccount was named.")
	case account != nil && apierrors.IsNotFound(account.err):
		return e.notFound(ctx)
	case account != nil && account.err != nil && e.annotationsUnknown():
		return e.unreadable(ctx, account.err)
	case e.annotationsUnknown():
		return doctor.Unclear(doctor.Do("Pass --kubeconfig, or the annotation: --annotation "+e.missingKey(e.serviceAccount())+"=VALUE"),
			"The annotations of the ServiceAccount are unknown.")
	case e.usesAgent():
		return doctor.Passed(byAgent)
	}
	return e.checkAnnotations(ctx, e.serviceAccount())
}

// annotationsUnknown reports that the identity was not read, so nothing can be exchanged.
func (e *examination) annotationsUnknown() bool {
	return e.Annotations == nil && e.injected == nil && len(e.cloud.annotations) > 0 && (e.account == nil || e.account.err != nil)
}

// notFound also names the namespace where a ServiceAccount of that name exists.
func (e *examination) notFound(ctx context.Context) doctor.Finding {
	key := e.key()
	message := fmt.Sprintf("ServiceAccount %s does not exist.", key)
	if err := e.read(ctx, "Namespace", client.ObjectKey{Name: key.Namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
		message = fmt.Sprintf("Namespace %s does not exist.", key.Namespace)
	}
	remedy := doctor.Do("Correct namespace and name. "+e.isMeant(), contexts)
	if others := e.sameName(ctx); len(others) > 0 {
		message += fmt.Sprintf(" A ServiceAccount %s exists in %s.", key.Name, strings.Join(others, ", "))
		remedy = doctor.Do("Name that one, if it is meant. " + e.isMeant())
	}
	return doctor.Failed(reason.ServiceAccountNotFound, remedy, "%s", message)
}

// sameName returns up to three namespaces with a ServiceAccount of that name.
func (e *examination) sameName(ctx context.Context) (namespaces []string) {
	found := &unstructured.UnstructuredList{}
	found.SetAPIVersion("v1")
	found.SetKind("ServiceAccountList")
	const enough = 3
	if e.Client.List(ctx, found, client.MatchingFields{"metadata.name": e.key().Name}, client.Limit(enough)) != nil {
		return nil // the caller may not list
	}
	for i := range found.Items {
		if found.Items[i].GetName() == e.key().Name && len(namespaces) < enough {
			namespaces = append(namespaces, found.Items[i].GetNamespace())
		}
	}
	return namespaces
}

func (e *examination) unreadable(ctx context.Context, err error) doctor.Finding {
	if apierrors.IsForbidden(err) {
		return e.missingRight(ctx, "You may not read ServiceAccount %s: %s.", e.key(), strings.TrimRight(kubeerror.Message(err, e.secrets...), "."))
	}
	remedy := doctor.Do("Check that this works:", "kubectl get sa -n "+e.namespaceWord()+" "+e.nameWord())
	return doctor.Unclear(remedy, "ServiceAccount %s cannot be read: %s.", e.key(), strings.TrimRight(kubeerror.Message(err, e.secrets...), "."))
}

// checkAnnotations finds out whether the provider accepts the annotations, and why not.
func (e *examination) checkAnnotations(ctx context.Context, sa *corev1.ServiceAccount) doctor.Finding {
	if m := e.cloud.nearMiss(sa.Annotations, sa.Labels); m.wrote != "" {
		return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Write it correctly:", e.annotating(m.key+"="+shell.Word(m.value, "VALUE"))),
			"ServiceAccount %s has a misspelt annotation.", e.key()).Compare("annotation", m.wrote, "expected", m.meant)
	}
	opts := e.resolved()
	identity, err := e.Provider.GetIdentity(sa, opts)
	if err == nil && len(opts.Audiences) == 0 {
		_, err = e.Provider.GetAudiences(ctx, sa, opts)
	}
	if err != nil {
		return e.checkIdentityError(sa, err)
	}
	if identity == "" {
		return doctor.Passed("ServiceAccount %s needs no identity in an annotation.", e.key())
	}
	return doctor.Passed("ServiceAccount %s names %s.", e.key(), identity)
}

func (e *examination) checkIdentityError(sa *corev1.ServiceAccount, err error) doctor.Finding {
	var known *auth.Error
	key := e.missingKey(sa)
	if errors.As(err, &known) && known.Cause != authcause.IdentityMissing && (key == "" || known.Cause != authcause.MetadataServer) {
		f := malformedName(err)
		f.Class = cmp.Or(f.Class, reason.IdentityNotConfigured)
		return f
	}
	if key == "" {
		return e.refusal("The metadata server", err)
	}
	return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Annotate it:", e.annotating(key+"="+e.valueOf(key))),
		"ServiceAccount %s lacks the annotation %s.", e.key(), key)
}

// missingKey returns the annotation that the provider needs and the ServiceAccount lacks.
func (e *examination) missingKey(sa *corev1.ServiceAccount) string {
	needed := map[string][]string{"aws": {annotation.AWSRoleARN}, "azure": {annotation.AzureClientID, annotation.AzureTenantID},
		"gcp": {annotation.GCPWorkloadIdentityProvider}}[e.Provider.GetName()]
	if i := slices.IndexFunc(needed, func(key string) bool { return sa.Annotations[key] == "" }); i >= 0 {
		return needed[i]
	}
	return ""
}

func (e *examination) valueOf(key string) string {
	return cmp.Or(map[string]string{annotation.AzureTenantID: "TENANT_ID", annotation.GCPServiceAccount: "NAME@PROJECT_ID.iam.gserviceaccount.com",
		annotation.GCPWorkloadIdentityProvider: "projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER"}[key], e.cloud.example)
}

// malformedName keeps the message of the provider, which names the value.
func malformedName(err error) doctor.Finding {
	var known *auth.Error
	if !errors.As(err, &known) {
		return doctor.Failed("", doctor.Remedy{}, "%v.", err)
	}
	remedy := doctor.Do(doctor.Sentence(known.Remedy))
	remedy.Option = known.Option
	return doctor.Failed(doctor.ClassOf(err).Reason, remedy, "%s", doctor.Sentence(known.Message))
}
