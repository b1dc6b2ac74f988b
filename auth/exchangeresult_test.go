package auth_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
)

// refusing is an API server that gives no tokens.
type refusing struct {
	client.Client
	err error
}

func (r refusing) SubResource(string) client.SubResourceClient { return refusal{err: r.err} }

type refusal struct {
	client.SubResourceClient
	err error
}

func (r refusal) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return r.err
}

// A failure of the API server is not the cloud's; a missing rule stays what it is.
func TestExchangeResult(t *testing.T) {
	resource := schema.GroupResource{Resource: "serviceaccounts"}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"down":        {errors.New("connection refused"), "kubernetes_unavailable"},
		"unavailable": {apierrors.NewServiceUnavailable("later"), "kubernetes_unavailable"},
		"throttled":   {apierrors.NewTooManyRequests("slowly", 1), "kubernetes_unavailable"},
		"slow":        {context.DeadlineExceeded, "kubernetes_unavailable"},
		"forbidden":   {apierrors.NewForbidden(resource, "app", errors.New("no rule")), ""},
		"deleted":     {apierrors.NewNotFound(resource, "app"), ""},
	} {
		source := auth.TokenRequest{Client: refusing{err: tc.err}, ServiceAccount: &corev1.ServiceAccount{}}
		_, _, err := source.Token(t.Context(), []string{"sts.amazonaws.com"})
		var known *auth.Error
		if !errors.As(err, &known) || known.ExchangeResult() != tc.want {
			t.Errorf("%s: %v is %q, want %q", name, err, known.ExchangeResult(), tc.want)
		}
	}
	if got := (&auth.Error{Operation: "assume role", Reason: auth.ErrUnavailable}).ExchangeResult(); got != "" {
		t.Errorf("the cloud's own failure is %q", got)
	}
}
