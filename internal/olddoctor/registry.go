package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/redact"
	internal "github.com/workloadid/workloadid/internal/transport"
)

// Check 23.
func (e *examination) checkRegistry(ctx context.Context) Finding {
	if e.Repository == "" {
		return skip("no registry was named")
	}
	if e.gained == nil {
		return Finding{Result: Skip, Needs: 21, Message: "skipped: needs check 21"}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	defer waiting(ctx, "the registry "+hostOf("https://"+e.Repository))()
	credentials, err := e.registryCredentials(ctx)
	if err != nil {
		return e.refusal(ctx, err)
	}
	client := e.RegistryClient
	if client == nil {
		client = e.resolved().HTTPClient
	}
	guarded, err := e.pool.For(client, e.resolved().ProxyURL)
	if err != nil {
		return unknown("the registry cannot be asked: "+shown(err.Error()), "")
	}
	repository, err := name.NewRepository(e.Repository)
	if err != nil {
		return pass("the registry gave a password; name a repository to see whether it can be pulled")
	}
	return e.judgeRegistry(ctx, pullTags(ctx, guarded, repository, credentials))
}

// pullTags asks for the tags of a repository, with the rights that a pull needs. An answer other than 200 is a *transport.Error.
func pullTags(ctx context.Context, client *http.Client, repository name.Repository, credentials *auth.ArtifactRegistryCredentials,
) error {
	way := registryWay{client.Transport, repository.RegistryStr()}
	rt, err := transport.NewWithContext(ctx, repository.Registry, credentials, way, []string{repository.Scope(transport.PullScope)})
	if err != nil {
		return err
	}
	address := fmt.Sprintf("%s://%s/v2/%s/tags/list?n=1", repository.Scheme(), repository.RegistryStr(), repository.RepositoryStr())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
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

func (e *examination) judgeRegistry(ctx context.Context, err error) Finding {
	status, body := http.StatusOK, ""
	var refused *transport.Error
	var way noAnswer
	switch {
	case errors.Is(err, errLedAway):
		return unknown("the registry cannot be asked: "+errLedAway.Error(), "see what answers in the registry's place: a proxy, perhaps")
	case errors.As(err, &refused):
		status = refused.StatusCode
		for _, d := range refused.Errors {
			body += " " + string(d.Code) + " " + d.Message
		}
	case errors.As(err, &way), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unknown("the registry cannot be reached: "+internal.Message(err), "see why this machine does not reach it (HTTPS_PROXY, NO_PROXY, resolver, firewall)")
	case err != nil: // its text holds whole answers
		return unknown("the registry gives no usable answer", "see what answers in the registry's place: a proxy, perhaps")
	}
	body = redact.Text(body, e.known.all()...)
	switch {
	case status == http.StatusOK:
		return pass("the registry accepts the credentials, %s can be pulled", shown(e.Repository))
	case status == http.StatusNotFound:
		return Finding{Result: Warn, Class: classOfRegistry(e.Provider.GetName()), Message: "the registry accepts the credentials, but the repository does not exist",
			Remedy: "correct its name"}.with(differs("repository", "not found", e.Repository))
	case status != http.StatusUnauthorized && status != http.StatusForbidden:
		return unknown(fmt.Sprintf("the registry answers %d", status), "try again")
	}
	id := classOfRegistry(e.Provider.GetName())
	if strings.Contains(body, "authorization token has expired") {
		id = "A17"
	}
	class, _ := classByID(id)
	f := fail(id, e.filled(ctx, class.Remedy), "logging in works, pulling is denied: %s", firstOf(body, http.StatusText(status)))
	f.Causes, f.StatusCode = class.Causes, status
	return f
}
