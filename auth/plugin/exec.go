package plugin

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/clusterprofile"
	"github.com/workloadid/workloadid/internal/input"
)

// ExecInfoVariable is the environment variable that holds the request of
// kubectl and client-go to an exec plugin.
const ExecInfoVariable = "KUBERNETES_EXEC_INFO"

const (
	execGroup   = "client.authentication.k8s.io"
	execKind    = "ExecCredential"
	defaultExec = execGroup + "/v1"
)

// execVersions have the same relevant fields.
var execVersions = []string{defaultExec, execGroup + "/v1beta1"}

// ExecInfo is the request to an exec plugin (client.authentication.k8s.io, v1
// and v1beta1).
type ExecInfo struct {
	// APIVersion is the version of the expected answer.
	APIVersion string
	// Cluster is the target of the credential. It is nil unless the kubeconfig
	// sets provideClusterInfo.
	Cluster *ExecCluster
}

// ExecCluster is a cluster as the kubeconfig describes it.
type ExecCluster struct {
	// Server is the address of the API server.
	Server string
	// CAData holds PEM certificates. Empty: the system's roots.
	CAData []byte
	// ProxyURL is the proxy for requests to the cluster. Empty: none.
	ProxyURL string
	// Config is the extension client.authentication.k8s.io/exec of the cluster,
	// in JSON. It is empty without the extension.
	Config []byte
}

// ParseExecInfo parses the value of [ExecInfoVariable]. An empty value, as in a
// call by a person, means version v1 and no cluster. ParseExecInfo refuses a
// cluster with insecure-skip-tls-verify or tls-server-name, because the
// credential could reach an attacker.
func ParseExecInfo(value string) (*ExecInfo, error) {
	if value == "" {
		return &ExecInfo{APIVersion: defaultExec}, nil
	}
	const remedy = "have kubectl or client-go call the plugin; they set " + ExecInfoVariable
	var c clientauthv1.ExecCredential
	if len(value) > input.MaxRequest || json.Unmarshal([]byte(value), &c) != nil {
		return nil, self.Misconfigured(remedy, "%s does not hold an %s in JSON", ExecInfoVariable, execKind)
	}
	if c.Kind != execKind {
		return nil, self.Misconfigured(remedy, "%s holds a %.100q, not an %s", ExecInfoVariable, c.Kind, execKind)
	}
	if !slices.Contains(execVersions, c.APIVersion) {
		return nil, self.Misconfigured("set apiVersion of the kubeconfig's exec section to one of: "+
			strings.Join(execVersions, ", "), "the version %.100q of %s is not known", c.APIVersion, execKind)
	}
	info := &ExecInfo{APIVersion: c.APIVersion}
	if cluster := c.Spec.Cluster; cluster != nil {
		err := clusterprofile.CheckTLS(cluster.Server, cluster.TLSServerName, cluster.InsecureSkipTLSVerify, "kubeconfig")
		if err != nil {
			return nil, err
		}
		info.Cluster = &ExecCluster{Server: cluster.Server, CAData: cluster.CertificateAuthorityData,
			ProxyURL: cluster.ProxyURL,
			Config:   cluster.Config.Raw}
	}
	return info, nil
}

// Encode returns the answer with a bearer token. The client asks again once the
// token has expired. If expires is zero, it asks again after a refusal.
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
