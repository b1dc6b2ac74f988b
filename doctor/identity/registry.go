package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/redact"
	internal "github.com/workloadid/workloadid/internal/transport"
)

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
	httpClient, err := e.client(e.RegistryClient)
	if err != nil {
		return e.refusal("The registry", err)
	}
	return e.judgeRegistry(listTags(ctx, httpClient, repository, credentials))
}

// listTags returns a *transport.Error for an answer other than 200. The provider has compared the registry's host, which is trusted to
// name the address that gets its password.
func listTags(ctx context.Context, httpClient *http.Client, repository name.Repository, credentials *auth.ArtifactRegistryCredentials) error {
	rt, err := transport.NewWithContext(ctx, repository.Registry, credentials, httpClient.Transport, []string{repository.Scope(transport.PullScope)})
	if err != nil {
		return err
	}
	address := fmt.Sprintf("https://%s/v2/%s/tags/list?n=1", repository.RegistryStr(), repository.RepositoryStr())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: rt, CheckRedirect: internal.NoRedirect}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	return transport.CheckError(resp, http.StatusOK)
}

func (e *examination) judgeRegistry(err error) doctor.Finding {
	var refused *transport.Error
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
	class := e.cloud.registry
	switch {
	case status == http.StatusNotFound:
		return doctor.Failed(class, doctor.Do("Correct the name of the repository."), "The registry accepts the credentials, but has no repository %s.", e.Repository).As(doctor.Warn)
	case status != http.StatusUnauthorized && status != http.StatusForbidden:
		return doctor.Unclear(doctor.Do("Try again."), "The registry answers %d.", status)
	case strings.Contains(body, "authorization token has expired"):
		class = "A17"
	}
	known, _ := doctor.ClassByID(class)
	f := doctor.Failed(class, sentence(e.filled(known.Remedy)), "The registry gave a password, but denies the pull.").Detail("answer", cmp.Or(body, http.StatusText(status)))
	f.Causes, f.StatusCode = known.Causes, status
	return f
}
