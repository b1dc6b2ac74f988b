// Package authenticator authenticates bootstrap tokens as the API server does, for servers of one's own: as a function, and
// as a webhook that answers TokenReviews.
//
//	mux.Handle("/authenticate", authenticator.New(reader).Handler())
//
// It implements authenticator.Token of k8s.io/apiserver, without regard to audiences: the tokens are for the API server, so wrap
// it with authenticator.WrapAudienceAgnosticToken, as the API server does, where there are others.
//
// Serve the Handler to the API server alone, over TLS with client certificates (the kubeconfig of
// --authentication-token-webhook-config-file has room for one): it tells everybody who reaches it whether a token is right.
package authenticator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	authn "k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
)

// Authenticator authenticates bootstrap tokens with the usage "authentication". It is safe for concurrent use.
type Authenticator struct {
	reader client.Reader
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
	// Failed is told why Handler could not look a token up, never the token, maybe on several goroutines at once: whoever
	// asks is told that it was so, and no more. Nil: nobody is told.
	Failed func(error)
}

// New returns an Authenticator that reads Secrets in kube-system. The reader needs the verb get there.
func New(reader client.Reader) *Authenticator { return &Authenticator{reader: reader} }

var _ authn.Token = (*Authenticator)(nil)

// AuthenticateToken returns who the token stands for: the user system:bootstrap:<token ID>, in the group
// system:bootstrappers and the token's own. ok is false for whatever is no valid token, without saying why, as
// that would help whoever guesses. err means that the Secret could not be read, and never holds the token.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (response *authn.Response, ok bool, err error) {
	t, err := bootstrap.ParseToken(token)
	if err != nil {
		return nil, false, nil //nolint:nilerr // some other kind of token
	}
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: bootstrap.SecretNamespace, Name: bootstrap.SecretNamePrefix + t.ID()}
	if err := a.reader.Get(ctx, key, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("read secret %q: %w", key, err)
	}
	if secret.DeletionTimestamp != nil {
		return nil, false, nil
	}
	c, err := bootstrap.ParseSecret(&secret)
	if err != nil || !c.Token.Equal(t) || c.MalformedGroups || c.Expired(a.now()) || !c.Allows(bootstrap.UsageAuthentication) {
		return nil, false, nil //nolint:nilerr // a Secret that Kubernetes ignores too
	}
	return &authn.Response{User: &user.DefaultInfo{Name: c.User(), Groups: append([]string{bootstrap.DefaultGroup}, c.Groups...)}}, true, nil
}

func (a *Authenticator) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return time.Now()
}

const maxReview = 1 << 20

// Handler answers TokenReviews (authentication.k8s.io/v1), for the API server's webhook token authentication. It names no
// audiences, whichever are asked for: the API server then takes the token for its own, and for nobody else's. The package
// comment says who may reach it.
func (a *Authenticator) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.Error(w, "POST a TokenReview", http.StatusMethodNotAllowed)
			return
		}
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&review); err != nil ||
			review.Kind != "TokenReview" || review.APIVersion != authenticationv1.SchemeGroupVersion.String() {
			http.Error(w, "the body is not a TokenReview of "+authenticationv1.SchemeGroupVersion.String(), http.StatusBadRequest)
			return
		}
		review.Status = a.review(r.Context(), review.Spec.Token)
		review.Spec = authenticationv1.TokenReviewSpec{} // the token need not go back
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // a client that has gone needs no answer
	})
}

func (a *Authenticator) review(ctx context.Context, token string) authenticationv1.TokenReviewStatus {
	response, ok, err := a.AuthenticateToken(ctx, token)
	switch {
	case err != nil:
		if a.Failed != nil {
			a.Failed(err)
		}
		return authenticationv1.TokenReviewStatus{Error: "the token cannot be looked up now"}
	case !ok:
		return authenticationv1.TokenReviewStatus{}
	}
	return authenticationv1.TokenReviewStatus{Authenticated: true,
		User: authenticationv1.UserInfo{Username: response.User.GetName(), Groups: response.User.GetGroups()}}
}
