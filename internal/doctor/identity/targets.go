package identity

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	registrytransport "github.com/google/go-containerregistry/pkg/v1/remote/transport"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// checkCluster asks the named cluster who the credential belongs to.
func (e *examination) checkCluster(ctx context.Context) doctor.Finding {
	opts := append(e.options(), auth.WithClusterResource(e.Cluster), auth.WithClusterAddress(e.ClusterAddress), auth.WithCAData(e.ClusterCA))
	access, err := auth.GetRESTConfig(ctx, e.Provider, opts...)
	if err != nil {
		f := e.refusal("The cluster's API", err)
		if f.Class == "" && f.Result == doctor.Fail {
			class := doctor.ClassFor(e.Provider.GetName(), reason.ClusterDenied)
			class.Remedy = cmp.Or(class.Remedy, "correct the name of the cluster")
			f.Class, f.Remedy = class.Reason, e.remedyOf(class)
		}
		return f
	}
	e.keepSecret(access.BearerToken())
	review := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
	status, err := e.post(ctx, access, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
	user := review.Status.UserInfo.Username
	switch {
	case err != nil:
		return doctor.Unclear(doctor.Do("Check address and CA of the cluster."), "The cluster cannot be reached: %s.", strings.TrimRight(transport.Message(err, e.secrets...), "."))
	case status == http.StatusUnauthorized:
		return e.unknownToCluster(ctx)
	case status != http.StatusCreated && status != http.StatusOK:
		return doctor.Unclear(doctor.Do("Try again."), "The cluster answers %d.", status)
	case user == "" || redact.Clean(user, e.secrets...) != user: // no user, or what it was sent
		return doctor.Unclear(doctor.Do("Check that the address is that of the cluster's API server."), "The answer is not that of an API server.")
	}
	return doctor.Passed("The cluster knows you as %s.", user)
}

// unknownToCluster explains a 401, which has no reason in it.
func (e *examination) unknownToCluster(ctx context.Context) doctor.Finding {
	class := doctor.ClassFor(e.Provider.GetName(), reason.ClusterRefusesIdentity)
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

// post creates a review at the cluster and reads the answer into it.
func (e *examination) post(ctx context.Context, access *auth.RESTConfig, path string, review any) (status int, err error) {
	httpClient, err := e.pool.Client(e.resolved().ProxyURL, string(access.CAData()))
	if err != nil {
		return 0, err
	}
	body, err := json.Marshal(review)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(access.Host(), "/")+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+access.BearerToken())
	resp, err := httpClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	answer, err := io.ReadAll(io.LimitReader(resp.Body, transport.MaxBody))
	if err != nil {
		return 0, err
	}
	_ = json.Unmarshal(answer, review) // anything but a review stays empty
	return resp.StatusCode, nil
}

// checkRegistry pulls the list of tags, which takes the rights of a pull.
func (e *examination) checkRegistry(ctx context.Context) doctor.Finding {
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
	return e.examineRegistry(listTags(ctx, e.client(e.RegistryClient), repository, credentials))
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
	status, body := refused.StatusCode, ""
	for _, d := range refused.Errors {
		body += string(d.Code) + " " + d.Message + " "
	}
	body = redact.Text(body, e.secrets...)
	switch {
	case status == http.StatusNotFound:
		return doctor.Failed(reason.RegistryDenied, doctor.Do("Correct the name of the repository."), "The registry accepts the credentials, but has no repository %s.", e.Repository).As(doctor.Warn)
	case status != http.StatusUnauthorized && status != http.StatusForbidden:
		return doctor.Unclear(doctor.Do("Try again."), "The registry answers %d.", status)
	}
	known := doctor.ClassFor(e.Provider.GetName(), reason.RegistryDenied)
	f := doctor.Failed(reason.RegistryDenied, e.remedyOf(known), "The registry gave a password, but denies the pull.").Detail("answer", cmp.Or(body, http.StatusText(status)))
	f.Causes, f.StatusCode = known.Causes, status
	return f
}
