package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

// checkHelpers asks the container-credentials endpoint of the AWS SDKs, as EKS Pod Identity and podidentity's proxy serve it.
func (e *examination) checkHelpers(ctx context.Context) doctor.Finding {
	address, tokenFile := e.Helper, e.HelperTokenFile
	if address == "" && e.InPod {
		address, tokenFile = e.Getenv(endpointVariable), e.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
	}
	if address == "" {
		return doctor.Skipped("No credentials endpoint was named.")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil || !mayServe(req.URL) {
		return doctor.Failed("A14", doctor.Do("Use https, or the address of the agent or of a sidecar."),
			"SDKs refuse an endpoint over http other than on this machine, ECS or EKS.").Compare(endpointVariable, address, "expected", "a loopback address, 169.254.170.2, 169.254.170.23 or [fd00:ec2::23]")
	}
	if f, wrong := e.authorize(ctx, req, tokenFile); wrong {
		return f
	}
	httpClient, err := e.pool.Client(nil, "")
	if err != nil {
		return doctor.Unclear(doctor.Remedy{}, "The endpoint cannot be asked.")
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return doctor.Failed("A14", e.sidecarLog(), "The credentials endpoint cannot be reached: %s.", strings.TrimRight(transport.Message(err, e.secrets...), "."))
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	body, err := io.ReadAll(io.LimitReader(resp.Body, transport.MaxBody))
	if err != nil {
		return doctor.Unclear(doctor.Do("Try again."), "The endpoint's answer breaks off.")
	}
	return e.judgeHelper(resp, body)
}

// authorize adds the authorization token of the endpoint.
func (e *examination) authorize(ctx context.Context, req *http.Request, file string) (doctor.Finding, bool) {
	if file == "" {
		return doctor.Finding{}, false
	}
	token, err := readFile(ctx, file)
	switch {
	case err != nil:
		return doctor.Failed("K9", doctor.Do("Mount the authorization token."), "The endpoint's authorization token cannot be read: %v.", lastError(err)), true
	case strings.ContainsAny(token, "\r\n"):
		return doctor.Failed("A14", doctor.Do("Write the token without a newline."), "The endpoint's authorization token has a newline, so SDKs refuse it."), true
	}
	e.keepSecret(token)
	req.Header.Set("Authorization", token)
	return doctor.Finding{}, false
}

func (e *examination) judgeHelper(resp *http.Response, body []byte) doctor.Finding {
	if resp.StatusCode != http.StatusOK {
		f := doctor.Failed("A14", e.sidecarLog(), "The credentials endpoint answers %d.", resp.StatusCode)
		f.StatusCode = resp.StatusCode
		return f
	}
	var answer struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string `json:"SecretAccessKey"`
		Token           string `json:"Token"`
		Expiration      string `json:"Expiration"`
	}
	wrong := doctor.Do("Use an endpoint that implements the container-credentials protocol.")
	if json.Unmarshal(body, &answer) != nil {
		return doctor.Failed("A14", wrong, "The endpoint's answer is not JSON.")
	}
	e.keepSecret(answer.SecretAccessKey, answer.Token)
	end, err := time.Parse(time.RFC3339, answer.Expiration)
	switch {
	case answer.AccessKeyID == "" || answer.SecretAccessKey == "" || answer.Token == "":
		return doctor.Failed("A14", wrong, "The endpoint's answer lacks AccessKeyId, SecretAccessKey or Token.")
	case err != nil || !strings.HasSuffix(answer.Expiration, "Z"):
		return doctor.Failed("A14", wrong, "The endpoint's Expiration is not a time in UTC.").Compare("Expiration", answer.Expiration, "expected", "2006-01-02T15:04:05Z")
	case !end.After(e.Now()):
		return doctor.Failed("A14", doctor.Do("Restart the sidecar."), "The endpoint's credentials have expired.").Compare("Expiration", stamp(end), "now", stamp(e.Now()))
	}
	return doctor.Passed("The credentials endpoint answers; its credentials expire at %s.", stamp(end))
}

func (e *examination) sidecarLog() doctor.Remedy {
	return doctor.Do("Check whether the sidecar or the agent runs:",
		fmt.Sprintf("kubectl logs -n %s %s -c SIDECAR", shell.Word(e.Pod.Namespace, "NAMESPACE"), shell.Word(e.Pod.Name, "POD_NAME")))
}

// mayServe is the rule of the AWS SDKs for AWS_CONTAINER_CREDENTIALS_FULL_URI.
func mayServe(u *url.URL) bool {
	host := u.Hostname()
	ip := net.ParseIP(host)
	return u.Scheme == "https" || host == "localhost" || ip != nil && (ip.IsLoopback() ||
		slices.Contains([]string{"169.254.170.2", "169.254.170.23", "fd00:ec2::23"}, ip.String()))
}
