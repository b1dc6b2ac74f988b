package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

// Check 25: the container-credentials endpoint of the AWS SDKs, as EKS Pod Identity and podidentity's proxy serve it.
func (e *examination) checkHelpers(ctx context.Context) Finding {
	address := e.Helper
	tokenFile := e.HelperTokenFile
	if address == "" && e.InPod {
		address, tokenFile = e.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI"), e.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
	}
	if address == "" {
		return skip("no endpoint for credentials was named")
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	defer waiting(ctx, "the endpoint for credentials")()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fail("A14", "correct AWS_CONTAINER_CREDENTIALS_FULL_URI", "the address of the endpoint is not a URL")
	}
	if !mayServe(req.URL) {
		return fail("A14", "use https, or the address of the agent or of a sidecar", "SDKs ask no endpoint over http but this machine's and those of ECS and EKS").
			with(differs("host", req.URL.Host, "a loopback address, 169.254.170.2, 169.254.170.23 or [fd00:ec2::23]"))
	}
	if tokenFile != "" {
		token, err := readToken(ctx, tokenFile)
		if err != nil {
			return fail("K9", "mount the authorization token", "the authorization token of the endpoint cannot be read: %s", oneLine(lastError(err)))
		}
		if strings.ContainsAny(token, "\r\n") {
			return fail("A14", "write the authorization token without a newline", "the authorization token has a newline, for which SDKs refuse it")
		}
		e.helperToken = token
		req.Header.Set("Authorization", strings.TrimSpace(token))
	}
	client, err := e.pool.Client(nil, "")
	if err != nil {
		return unknown("the endpoint cannot be asked", "")
	}
	asked := e.Now()
	resp, err := client.Do(req)
	if whole.Err() != nil {
		return unknown("the endpoint has not answered yet", "")
	}
	if err != nil {
		return fail("A14", "see whether the sidecar or the agent runs:\n"+e.sidecarLog(),
			"the endpoint cannot be reached: %s", transport.Message(err))
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return unknown("the endpoint's answer breaks off", "try again")
	}
	return e.judgeHelper(resp, body, e.Now().Sub(asked))
}

func (e *examination) judgeHelper(resp *http.Response, body []byte, took time.Duration) Finding {
	if resp.StatusCode != http.StatusOK {
		f := fail("A14", "see the sidecar's log:\n"+e.sidecarLog(), "the endpoint answers %d", resp.StatusCode)
		f.StatusCode = resp.StatusCode
		return f.with(differs("status", strconv.Itoa(resp.StatusCode), "200"), same("Content-Type", firstOf(resp.Header.Get("Content-Type"), "none")))
	}
	var answer struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string `json:"SecretAccessKey"`
		Token           string `json:"Token"`
		Expiration      string `json:"Expiration"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return fail("A14", "use an endpoint that speaks the protocol", "the endpoint's answer is not JSON")
	}
	e.known.add(answer.SecretAccessKey, answer.Token)
	end, err := time.Parse(time.RFC3339, answer.Expiration)
	switch {
	case answer.AccessKeyID == "" || answer.SecretAccessKey == "" || answer.Token == "":
		return fail("A14", "use an endpoint that speaks the protocol", "the endpoint's answer lacks AccessKeyId, SecretAccessKey or Token")
	case err != nil || !strings.HasSuffix(answer.Expiration, "Z"):
		return fail("A14", "use an endpoint that speaks the protocol", "the endpoint's Expiration is not a time in UTC").
			with(differs("Expiration", answer.Expiration, "2006-01-02T15:04:05Z"))
	case !end.After(e.Now()):
		return fail("A14", "restart the sidecar", "the endpoint's credentials have expired").
			with(differs("Expiration", stamp(end), "after "+stamp(e.Now())))
	case took > time.Second:
		return Finding{Result: Warn, Class: "A14", Remedy: "look for what slows the endpoint: SDKs give up after a second",
			Message: "the endpoint takes more than a second"}.with(Field{Name: "time", Observed: fmt.Sprint(took.Round(time.Millisecond)), Expected: "< 1s", Differs: true})
	}
	return pass("the endpoint answers; its credentials live until %s", stamp(end))
}

func (e *examination) sidecarLog() string {
	return fmt.Sprintf("kubectl logs -n %s %s -c SIDECAR", shell.Word(e.Pod.Namespace, "NAMESPACE"), shell.Word(e.Pod.Name, "POD_NAME"))
}

// mayServe is the rule of the AWS SDKs for AWS_CONTAINER_CREDENTIALS_FULL_URI.
func mayServe(u *url.URL) bool {
	host := u.Hostname()
	ip := net.ParseIP(host)
	return u.Scheme == "https" || host == "localhost" || ip != nil && (ip.IsLoopback() ||
		slices.Contains([]string{"169.254.170.2", "169.254.170.23", "fd00:ec2::23"}, ip.String()))
}
