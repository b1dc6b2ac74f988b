package bootstrap

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/workloadid/workloadid/internal/bootstrapcause"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/shell"
)

const infoPath = "/api/v1/namespaces/" + metav1.NamespacePublic + "/configmaps/" + bootstrapapi.ConfigMapClusterInfo

// Remedies returns the remedy of each reason.
func Remedies(config Config) map[string]doctor.Remedy { return newExamination(config).remedies() }

func (e *examination) remedies() map[string]doctor.Remedy {
	do, server := doctor.Do, e.Server
	if !strings.Contains(server, "://") && server != "" {
		server = "https://" + server
	}
	look := do("Correct address and port, or open the network path. API servers mostly listen on 6443 or 443, and have no path:",
		"curl -ki "+shell.Word(strings.TrimSuffix(server, "/")+infoPath, "https://HOST:PORT"+infoPath))
	publish := e.side.Do("In that cluster, as its administrator:", "wid bootstrap publish")
	pin := do("Compute the pin on a control plane node, and put sha256: before it:",
		"openssl x509 -pubkey -noout -in /etc/kubernetes/pki/ca.crt | openssl pkey -pubin -outform der | sha256sum")
	token := e.newToken("In that cluster, as its administrator, create a new token")
	return map[string]doctor.Remedy{
		"ArgumentMalformed": do("Correct the argument: the server is HOST:PORT, the token ID.SECRET or its ID, a pin sha256: and 64 hexadecimal digits."),
		"NoPin":             pin,
		"TokenUnusable":     token,

		bootstrapcause.Unreachable:          look,
		bootstrapcause.NotAPIServer:         look,
		bootstrapcause.Starting:             do("Try again in a minute."),
		bootstrapcause.AnonymousRefused:     do("Use wid bootstrap discover --discovery-file, or add the path to anonymous.conditions in the API server's AuthenticationConfiguration:", "- path: "+infoPath),
		bootstrapcause.Forbidden:            publish,
		bootstrapcause.NotPublished:         publish,
		bootstrapcause.ClusterInfoMalformed: publish,
		bootstrapcause.NotSignedForToken:    token,
		bootstrapcause.NotSigned:            do("Run the signer; kube-controller-manager takes:", "--controllers=*,bootstrapsigner,tokencleaner"),
		bootstrapcause.SignatureWrong:       e.newToken("Do not join before the administrator has compared cluster-info with what it should be. Then create a new token"),
		bootstrapcause.CANotPinned:          pin,
		bootstrapcause.ContentDiffers:       do("Try again. If it stays, do not join: an attacker is in between."),
		bootstrapcause.CertificateName:      do("Use an address that the certificate names, or name the right one with --tls-server-name."),
		bootstrapcause.CertificateCA:        do("Name the API server itself, not a load balancer with a certificate of its own. If this is it, do not join."),
		bootstrapcause.CertificateTime:      do("Synchronize this machine's clock. If it is right, renew the certificate on the control plane nodes:", "sudo timedatectl set-ntp true", "kubeadm certs renew apiserver"),
	}
}

func (e *examination) fault(class, format string, args ...any) doctor.Finding {
	return doctor.Failed(class, e.remedies()[class], format, args...)
}

// newGroup says which group a token needs. The usual one of kubeadm has no right to register a cluster.
const newGroup = "GROUP is system:bootstrappers:managedcluster for a cluster that joins a hub, system:bootstrappers:kubeadm:default-node-token for a node"

// newToken returns the remedy that creates a token with the groups of the stored one, if that was read.
func (e *examination) newToken(text string) doctor.Remedy {
	if len(e.groups) > 0 {
		return e.side.Do(text+":", "wid bootstrap create --groups "+shell.Word(strings.Join(e.groups, ","), "GROUP"))
	}
	return e.side.Do(text+". "+newGroup+".", "wid bootstrap create --groups GROUP")
}
