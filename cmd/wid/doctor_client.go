package main

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/transport"
)

// maxAnswer bounds an answer of an API server, in bytes after decompression: lists of a large hub have some megabytes.
const maxAnswer = 16 << 20

// newDoctorClient knows the kinds that the checks read and create, and asks the API server for no others.
func newDoctorClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
		corev1.SchemeGroupVersion.WithKind("Pod"), {Group: "apps", Version: "v1", Kind: "ReplicaSet"}} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	for _, kind := range []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Namespace"),
		admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
		authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview")} {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "wid"
	return newExaminingClient(config, client.Options{Scheme: scheme, Mapper: mapper})
}

// newExaminingClient is for an API server that may be what is wrong: it reads bounded answers, and the caller's credentials
// follow no redirect. It changes the config: what its clients send is known to an examination, which keeps it out of its report.
func newExaminingClient(config *rest.Config, options client.Options) (client.Client, error) {
	doctor.WatchCredentials(config)
	given, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	guarded := *given
	guarded.Transport = boundedAnswers{given.Transport}
	guarded.CheckRedirect = transport.NoRedirect
	options.HTTPClient = &guarded
	return client.New(config, options)
}

type boundedAnswers struct{ next http.RoundTripper }

func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	next := b.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	return resp, nil
}

// kubeconfigMistake keeps texts out that repeat an address: that of a proxy may hold a password.
func kubeconfigMistake(err error) string {
	text := err.Error()
	var parsing *url.Error
	switch {
	case strings.Contains(text, "proxy-url"), strings.Contains(text, "could not parse"), strings.Contains(text, "unsupported scheme"):
		return "a proxy-url of the kubeconfig is malformed: it has to begin with http://, https:// or socks5://"
	case errors.As(err, &parsing):
		return "an address of the kubeconfig is malformed"
	}
	return oneLine(text)
}
