package doctor

import (
	"crypto/x509"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/internal/shell"
)

// nameIt is what a run lacks that does not know whose credentials are wanted.
const nameIt = "name the ServiceAccount: --service-account NAMESPACE/SERVICE_ACCOUNT"

// noAccess is the finding of checks that would ask the API server.
func (e *examination) noAccess() Finding {
	switch {
	case e.barred:
		return unknown("the cluster cannot be asked: it refuses the caller's credentials", "see check 13")
	case e.InPod:
		return unknown("there is no access to the cluster", "have the pod's template mount a token for it "+
			"(automountServiceAccountToken: true), or run wid doctor elsewhere, with --pod, --service-account and --kubeconfig")
	case e.Token != "" || e.TokenFile != "":
		return unknown("there is no access to the cluster", "pass --kubeconfig, or --in-cluster, beside the token")
	}
	if e.ServiceAccount.Name != "" {
		return unknown("there is no access to the cluster", "give the examination a client of the ServiceAccount's cluster: Config.Client, Config.RESTConfig")
	}
	return unknown("there is no access to the cluster", nameIt+", or a pod: --pod NAMESPACE/POD_NAME")
}

// nameless says that a pod was named, but nobody who it runs as. The program's own identity is not meant then.
func (e *examination) nameless() bool {
	return e.ServiceAccount.Name == "" && e.Token == "" && e.TokenFile == "" && e.Pod.Name != "" && !e.InPod
}

// unnamed is the finding of checks that would look at a ServiceAccount or its token.
func (e *examination) unnamed() Finding {
	return Finding{Result: Skip, Needs: 15, Message: "skipped: who the pod runs as is not known, see check 15"}
}

// needsAPI says that there are no credentials without the API server: it would have to create a token.
func (e *examination) needsAPI() bool {
	return e.Token == "" && e.TokenFile == "" && (!e.own() || !e.cloud.readsIssuer)
}

// lockedOut is for an API server that answers 401. What can be had without it is examined all the same.
func (e *examination) lockedOut() Finding {
	f := fail("K10", "log in again; a program re-reads its token file", "401: the API server refuses the caller's own credentials").
		with(Field{Name: "status", Observed: "401", Expected: "201", Differs: true})
	switch {
	case e.ofPod():
		f.Message = "401: the API server refuses the token that the pod has for it"
		f.Causes = []string{"the ServiceAccount or the pod was re-created since the token was made",
			"the token has expired: a program re-reads its token file", "the cluster has other keys or another issuer than then"}
		f.Remedy = "restart the pod, and it gets a new token"
	case e.RESTConfig != nil && e.RESTConfig.ExecProvider != nil:
		f.Remedy = "log in again where " + shell.Word(e.RESTConfig.ExecProvider.Command, "COMMAND") + " takes its login from, " +
			"which the kubeconfig runs (" + logins + ")"
	}
	if e.needsAPI() {
		return f
	}
	e.barred, e.Client = true, nil
	f.Result, f.Message = Warn, f.Message+"; the exchange goes without"
	return f
}

// logins are those of the clouds' plugins for kubectl.
const logins = "aws sso login, az login, gcloud auth login"

// ofPod says that the caller is a pod, with the token that the kubelet gives it for the API server.
func (e *examination) ofPod() bool {
	const file = "/var/run/secrets/kubernetes.io/serviceaccount/token" // as rest.InClusterConfig has it
	return e.InPod || e.RESTConfig != nil && e.RESTConfig.BearerTokenFile == file
}

// credentialsOf begins what client-go says of exec plugins.
const credentialsOf = "getting credentials: "

const version = "kubectl get --raw /version"

// obstacle is why the API server could not be asked: what keeps the caller from it, or it from the caller.
func obstacle(err error) (why, remedy string, known bool) {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var certificate x509.CertificateInvalidError
	const again = "make the kubeconfig anew (aws eks update-kubeconfig, az aks get-credentials, gcloud container clusters get-credentials)"
	switch {
	case err == nil || apierrors.ReasonForError(err) != "":
		return "", "", false
	case errors.As(err, &authority):
		return "the API server's certificate is not of the authority that the kubeconfig names",
			"correct certificate-authority-data, or see whether a proxy answers in its place; or " + again, true
	case errors.As(err, &host):
		return "the API server's certificate is for another name than the kubeconfig's",
			"correct server or tls-server-name; or " + again, true
	case errors.As(err, &certificate) && certificate.Reason == x509.Expired:
		return "the API server's certificate is not valid now",
			"renew the API server's certificate, or set this machine's clock: timedatectl", true
	}
	text := err.Error()
	_, plugin, found := strings.Cut(text, credentialsOf)
	switch {
	case !found:
		return "", "", false
	case strings.Contains(plugin, "failed with exit code"):
		return "the program that the kubeconfig runs to log in has failed",
			"log in again (" + logins + "); the program itself says why:\n" + version, true
	case strings.Contains(plugin, " not found"), strings.Contains(plugin, "no such file"):
		return "the program that the kubeconfig runs to log in does not exist",
			"install it, or correct command in the kubeconfig; it is there if this works:\n" + version, true
	}
	return "the program that the kubeconfig runs to log in does not work", "see what it says:\n" + version, true
}

// onTheWay is the finding of check 13 for what the API server has never seen.
func (e *examination) onTheWay(err error) (Finding, bool) {
	why, remedy, known := obstacle(err)
	if !known {
		return Finding{}, false
	}
	text := kubeMessage(err, e.secrets()...)
	if _, plugin, found := strings.Cut(text, credentialsOf); found {
		text = plugin // nobody was asked
	}
	return unknown(why+": "+text, remedy), true
}
