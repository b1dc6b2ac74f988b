package bootstrapcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/tokens"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/redact"
)

// Checked is a part of a join by token, in the output of check. Parts are
// cluster-info, anonymous and token.
type Checked struct {
	Part string `json:"part"`
	// OK is false if the part keeps nodes and agents from joining by this
	// token. Detail then says why.
	OK      bool     `json:"ok"`
	ID      string   `json:"id,omitempty"`
	Expires string   `json:"expires,omitempty"`
	Usages  []string `json:"usages,omitempty"`
	Detail  string   `json:"detail"`
}

func newCheck(s *cli.Side) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Show what machines and clusters need to join by token: cluster-info, its readers, and each token with its signature",
		Long: "Show what machines and clusters need to join by token: cluster-info without credentials, readable without a login, and a token\n" +
			"with both usages that signs it. It changes nothing, and shows no secret. Without a usable token it fails too.",
		Example: "  wid bootstrap check --context hub",
	}
	o := cli.OutputFlag(cmd, "table", "json", "yaml")
	return s.Limited(cmd, cli.DefaultTimeout, func(ctx context.Context, cmd *cobra.Command) error {
		c, config, err := s.Connect()
		if err != nil {
			return err
		}
		rows, err := check(ctx, c, config)
		if err != nil {
			return cli.AnswerOf(err, "read what a join needs")
		}
		err = o.Print(cmd, map[string]any{"kind": "List", "items": rows}, func(w io.Writer) {
			cli.Row(w, "PART", "OK", "DETAIL")
			for _, r := range rows {
				cli.Row(w, strings.TrimSpace(r.Part+" "+r.ID), map[bool]string{true: "yes", false: "no"}[r.OK], r.Detail)
			}
		})
		works := map[string]bool{} // one usable token is enough
		for _, r := range rows {
			works[r.Part] = works[r.Part] || r.OK
		}
		if err == nil && (!works["cluster-info"] || !works["anonymous"] || !works["token"]) {
			err = cli.Problem(auth.ErrMisconfigured, "see the table", "no join by token works")
		}
		return err
	})
}

func check(ctx context.Context, c client.Client, config *rest.Config) ([]Checked, error) {
	published := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}
	if err := c.Get(ctx, key, published); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	anonymous, err := checkAnonymous(ctx, config)
	if err != nil {
		return nil, err
	}
	all, err := tokens.Manager{Client: c}.List(ctx)
	rows := []Checked{checkInfo(published.Data[bootstrapapi.KubeConfigKey]), anonymous}
	for _, l := range all {
		rows = append(rows, checkToken(l, published.Data))
	}
	if len(all) == 0 {
		rows = append(rows, Checked{Part: "token", Detail: "there is none: run wid bootstrap create"})
	}
	return rows, err
}

func checkInfo(content string) Checked {
	row := Checked{Part: "cluster-info"}
	info, err := bootstrap.ParseClusterInfo([]byte(content))
	switch {
	case content == "":
		row.Detail = "not published: run wid bootstrap publish"
	case err != nil:
		row.Detail = cli.OneLine(err.Error()) + ": run wid bootstrap publish"
	default:
		row.OK, row.Detail = true, "names "+info.Server+", without credentials"
	}
	return row
}

// checkAnonymous reads cluster-info as a machine does. An access review would
// not notice an API server that refuses all anonymous requests.
func checkAnonymous(ctx context.Context, config *rest.Config) (Checked, error) {
	row := Checked{Part: "anonymous"}
	config = rest.AnonymousClientConfig(config)
	cli.BoundAnswers(config)
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return row, err
	}
	_, err = c.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstrapapi.ConfigMapClusterInfo, metav1.GetOptions{})
	switch {
	case err == nil || apierrors.IsNotFound(err):
		row.OK, row.Detail = true, "may read cluster-info"
	case apierrors.IsForbidden(err):
		row.Detail = "may not read cluster-info, since the RoleBinding is missing: run wid bootstrap publish"
	case apierrors.IsUnauthorized(err):
		row.Detail = "the API server refuses requests without a login: allow them for cluster-info, or use a discovery file"
	default:
		return row, err
	}
	return row, nil
}

func checkToken(l tokens.Listed, published map[string]string) Checked {
	if l.Err != nil { // it names the Secret
		return Checked{Part: "token", Detail: "ignored: " + redact.Text(l.Err.Error())}
	}
	row, c := listed(l, false), l.Config
	checked := Checked{Part: "token", ID: row.ID, Expires: row.Expires, Usages: row.Usages}
	signature := published[bootstrapapi.JWSSignatureKeyPrefix+row.ID]
	fault := ""
	switch {
	case c.Expired(time.Now()):
		fault = "expired: run wid bootstrap create"
	case !c.Allows(bootstrap.UsageSigning):
		fault = "lacks the usage signing"
	case signature == "":
		fault = "no signature in cluster-info: is bootstrapsigner of kube-controller-manager running?"
	case bootstrap.Verify([]byte(published[bootstrapapi.KubeConfigKey]), signature, c.Token) != nil:
		fault = "its signature in cluster-info does not fit: is bootstrapsigner of kube-controller-manager running?"
	case !c.Allows(bootstrap.UsageAuthentication):
		fault = "does not log in: it lacks the usage authentication"
	}
	checked.OK = fault == ""
	checked.Detail = fmt.Sprintf("expires %s, usages %s; %s", cmp.Or(row.Expires, "never"), strings.Join(row.Usages, ","),
		cmp.Or(fault, "signs cluster-info"))
	return checked
}
