package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	registrytransport "github.com/google/go-containerregistry/pkg/v1/remote/transport"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	kubetransport "k8s.io/client-go/transport"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	reason "github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

const notTried = "None was named, or there is no credential."

// checkCluster asks the named cluster who the credential belongs to.
func (e *examination) checkCluster(ctx context.Context) doctor.Finding {
	if e.gained == nil || e.Cluster == "" && e.ClusterAddress == "" {
		return doctor.Skipped(notTried)
	}
	opts := append(e.options(), auth.WithClusterResource(e.Cluster), auth.WithClusterAddress(e.ClusterAddress), auth.WithCAData(e.ClusterCA))
	access, err := auth.GetRESTConfig(ctx, e.Provider, opts...)
	if err != nil {
		return e.refusal("The cluster's API", err)
	}
	e.keepSecret(access.BearerToken())
	user, err := e.userOf(ctx, access)
	switch {
	case apierrors.IsUnauthorized(err):
		return e.unknownToCluster(ctx)
	case err != nil:
		return doctor.Unclear(doctor.Do("Check address and CA of the cluster."), "The cluster gives no answer of use: %s.", strings.TrimRight(kubeerror.Message(err, e.secrets...), "."))
	case user == "" || redact.Clean(user, e.secrets...) != user: // no user, or what it was sent
		return doctor.Unclear(doctor.Do("Check that the address is that of the cluster's API server."), "The answer is not that of an API server.")
	}
	return doctor.Passed("The cluster knows you as %s.", user)
}

// userOf asks the cluster whose the credential is. The credential follows no redirect.
func (e *examination) userOf(ctx context.Context, access *auth.RESTConfig) (string, error) {
	httpClient, err := e.pool.Client(e.resolved().ProxyURL, string(access.CAData()))
	if err != nil {
		return "", err
	}
	bearer := kubetransport.NewBearerAuthRoundTripper(access.BearerToken(), httpClient.Transport)
	kube, err := authenticationclient.NewForConfigAndClient(&rest.Config{Host: access.Host()}, &http.Client{Transport: bearer, CheckRedirect: transport.NoRedirect})
	if err != nil {
		return "", err
	}
	review, err := kube.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return review.Status.UserInfo.Username, err
}

// unknownToCluster explains a 401, which has no reason in it.
func (e *examination) unknownToCluster(ctx context.Context) doctor.Finding {
	class := reason.ClassFor(e.Provider.GetName(), reason.ClusterRefusesIdentity)
	if class.Reason != "" && e.Access != nil {
		if f := e.Access.Access(ctx, e.Cluster, e.query().Identity); f.Result == doctor.Fail {
			return f
		}
	}
	remedy := e.remedyOf(class)
	if class.Reason == "" {
		remedy = doctor.Do("Configure the cluster to trust issuer and audience of the token.")
	}
	f := doctor.Failed(reason.ClusterRefusesIdentity, remedy, "The cluster refuses the credential (401).")
	f.Causes, f.StatusCode = class.Causes, http.StatusUnauthorized
	return f
}

// checkRegistry pulls the list of tags, which takes the rights of a pull.
func (e *examination) checkRegistry(ctx context.Context) doctor.Finding {
	if e.gained == nil || e.Repository == "" {
		return doctor.Skipped(notTried)
	}
	credentials, err := auth.GetArtifactRegistryCredentials(ctx, e.Provider, e.Repository, e.options()...)
	if err != nil {
		return e.refusal("The registry", err)
	}
	repository, err := name.NewRepository(e.Repository)
	if err != nil {
		return doctor.Passed("The registry gave a password. Name a repository to see whether it can be pulled.")
	}
	login, _ := credentials.Authorization() // never fails
	e.keepSecret(login.Password)
	opts := e.resolved()
	return e.examineRegistry(listTags(ctx, e.pool.For(opts.HTTPClient, opts.ProxyURL), repository, credentials))
}

// listTags returns a *registrytransport.Error for an answer other than 200. The provider has compared the registry's host, which is trusted to
// name the address that gets its password.
func listTags(ctx context.Context, httpClient *http.Client, repository name.Repository, credentials *auth.ArtifactRegistryCredentials) error {
	rt, err := registrytransport.NewWithContext(ctx, repository.Registry, credentials, httpClient.Transport, []string{repository.Scope(registrytransport.PullScope)})
	if err != nil {
		return err
	}
	address := fmt.Sprintf("https://%s/v2/%s/tags/list?n=1", repository.RegistryStr(), repository.RepositoryStr())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: rt, CheckRedirect: transport.NoRedirect}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	return registrytransport.CheckError(resp, http.StatusOK)
}

func (e *examination) examineRegistry(err error) doctor.Finding {
	var refused *registrytransport.Error
	switch {
	case err == nil:
		return doctor.Passed("The registry accepts the credentials, and %s can be pulled.", e.Repository)
	case !errors.As(err, &refused): // the text of other errors may hold whole answers
		return doctor.Unclear(doctor.Do("Check HTTPS_PROXY, and what answers in the registry's place."), "The registry gives no usable answer.")
	}
	switch status := refused.StatusCode; {
	case status == http.StatusNotFound:
		return doctor.Failed(reason.RegistryDenied, doctor.Do("Correct the name of the repository."), "The registry accepts the credentials, but has no repository %s.", e.Repository).As(doctor.Warn)
	case status != http.StatusUnauthorized && status != http.StatusForbidden:
		return doctor.Unclear(doctor.Do("Try again."), "The registry answers %d.", status)
	}
	var said []string
	for _, d := range refused.Errors {
		said = append(said, string(d.Code)+" "+d.Message)
	}
	known := reason.ClassFor(e.Provider.GetName(), reason.RegistryDenied)
	f := doctor.Failed(reason.RegistryDenied, e.remedyOf(known), "The registry gave a password, but denies the pull.").
		Detail("answer", redact.Text(list(said), e.secrets...))
	f.Causes, f.StatusCode = known.Causes, refused.StatusCode
	return f
}
