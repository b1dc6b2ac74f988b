package plugin

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/workloadid/workloadid/auth"
)

// ExecInfoVariable is the environment variable in which kubectl and client-go tell an exec plugin what they want.
const ExecInfoVariable = "KUBERNETES_EXEC_INFO"

const (
	execGroup   = "client.authentication.k8s.io"
	execKind    = "ExecCredential"
	defaultExec = execGroup + "/v1"
)

// execVersions have the same fields as far as they matter here.
var execVersions = []string{defaultExec, execGroup + "/v1beta1"}

// ExecInfo is what an exec plugin is told (client.authentication.k8s.io, v1 and v1beta1).
type ExecInfo struct {
	// APIVersion is the version of the answer that is expected.
	APIVersion string
	// Cluster is the cluster that the credential is for. Nil unless the kubeconfig says provideClusterInfo.
	Cluster *ExecCluster
}

// ExecCluster is a cluster as the kubeconfig describes it.
type ExecCluster struct {
	// Server is the address of the API server.
	Server string
	// CAData are PEM certificates. Empty: the system's roots are trusted.
	CAData []byte
}

// ParseExecInfo parses the value of ExecInfoVariable. If it is empty, because a person calls the plugin, it is of version v1
// and names no cluster. A cluster whose certificate is not verified is refused: a credential would go to whoever answers.
func ParseExecInfo(value string) (*ExecInfo, error) {
	if value == "" {
		return &ExecInfo{APIVersion: defaultExec}, nil
	}
	const remedy = "have kubectl or client-go call the plugin; they set " + ExecInfoVariable
	var c clientauthv1.ExecCredential
	if len(value) > maxRequest || json.Unmarshal([]byte(value), &c) != nil {
		return nil, self.Misconfigured(remedy, "%s does not hold an %s in JSON", ExecInfoVariable, execKind)
	}
	if c.Kind != execKind {
		return nil, self.Misconfigured(remedy, "%s holds a %.100q, not an %s", ExecInfoVariable, c.Kind, execKind)
	}
	if !slices.Contains(execVersions, c.APIVersion) {
		return nil, self.Misconfigured("set apiVersion of the kubeconfig's exec section to one of: "+strings.Join(execVersions, ", "),
			"the version %.100q of %s is not known", c.APIVersion, execKind)
	}
	info := &ExecInfo{APIVersion: c.APIVersion}
	if cluster := c.Spec.Cluster; cluster != nil {
		if cluster.InsecureSkipTLSVerify {
			return nil, self.Misconfigured("remove insecure-skip-tls-verify from the kubeconfig and set certificate-authority-data",
				"the certificate of the cluster at %.300q is not verified, so it gets no credential", hostOf(cluster.Server))
		}
		info.Cluster = &ExecCluster{Server: cluster.Server, CAData: cluster.CertificateAuthorityData}
	}
	return info, nil
}

// hostOf is of the address what a message can repeat: there may be a password in the rest.
func hostOf(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Host
}

// Encode returns the answer with a bearer token. The caller asks again once it has expired, or, if expires is zero, once the
// token is refused.
func (i *ExecInfo) Encode(bearerToken string, expires time.Time) ([]byte, error) {
	if bearerToken == "" {
		return nil, &auth.Error{Reason: auth.ErrUnavailable, Message: "there is no bearer token to hand out"}
	}
	status := &clientauthv1.ExecCredentialStatus{Token: bearerToken}
	if !expires.IsZero() {
		end := metav1.NewTime(expires.UTC().Truncate(time.Second))
		status.ExpirationTimestamp = &end
	}
	kind := metav1.TypeMeta{APIVersion: i.APIVersion, Kind: execKind}
	return marshal(clientauthv1.ExecCredential{TypeMeta: kind, Status: status})
}

func marshal(v any) ([]byte, error) {
	content, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(content, '\n'), nil
}
