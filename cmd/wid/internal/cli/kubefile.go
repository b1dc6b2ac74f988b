package cli

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

// KubeFile names a kubeconfig and a context. Empty fields mean the defaults of kubectl.
type KubeFile struct{ Path, Context string }

// Bind adds --kubeconfig and --context.
func (k *KubeFile) Bind(f *pflag.FlagSet, of string) {
	f.StringVar(&k.Path, "kubeconfig", "", "kubeconfig of "+of+"; KUBECONFIG and ~/.kube/config otherwise")
	f.StringVar(&k.Context, "context", "", "context of the kubeconfig")
}

// Rules returns the order in which kubectl reads files.
func (k KubeFile) Rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.Path
	return rules
}

// Config is for clients of the cluster.
func (k KubeFile) Config() (*rest.Config, error) {
	config, _, err := k.config(transport.MaxBody)
	return config, err
}

// config bounds answers in bytes. It also returns the namespace of the context, "default" if it names none. It reads a pipe once.
func (k KubeFile) config(answers int64) (*rest.Config, string, error) {
	loader, err := k.Load()
	if err != nil {
		return nil, "", err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	boundAnswersTo(config, answers)
	namespace, _, err := loader.Namespace()
	return config, namespace, err
}

// Load reads the files once, since a pipe such as <(…) of the shell has no second time.
func (k KubeFile) Load() (clientcmd.ClientConfig, error) {
	rules, overrides := k.Rules(), &clientcmd.ConfigOverrides{CurrentContext: k.Context}
	config, err := rules.Load()
	switch {
	case err != nil:
		return nil, err
	case clientcmdapi.IsConfigEmpty(config): // the pod's own serves as well
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
	}
	return clientcmd.NewNonInteractiveClientConfig(*config, "", overrides, rules), nil
}

// BoundAnswers bounds size and waiting time of answers.
func BoundAnswers(config *rest.Config) { boundAnswersTo(config, transport.MaxBody) }

func boundAnswersTo(config *rest.Config, bytes int64) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patience{transport.BoundedTo(next, bytes)} })
}

// patience removes a Retry-After that exceeds the deadline: client-go then returns the error of the server.
type patience struct{ next http.RoundTripper }

func (p patience) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// Without it no client follows a redirect with the user's credentials.
	resp.Header.Del("Location")
	deadline, limited := r.Context().Deadline()
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	// client-go knows seconds only.
	if err == nil && limited && time.Until(deadline) < time.Duration(seconds)*time.Second+Grace {
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}

// Current returns the name of the context, "" if it cannot be told. A pipe is not read twice.
func (k KubeFile) Current() string {
	isPipe := func(file string) bool { info, err := os.Stat(file); return err == nil && !info.Mode().IsRegular() }
	if k.Context != "" || slices.ContainsFunc(k.Rules().GetLoadingPrecedence(), isPipe) {
		return k.Context
	}
	raw, err := k.Rules().Load()
	if err != nil {
		return ""
	}
	return raw.CurrentContext
}

// Kubectl adds the kubeconfig and the context to a command of kubectl, or to one of wid for a single cluster.
func (k KubeFile) Kubectl(command string) string {
	program, arguments, _ := strings.Cut(command, " ")
	isWid := program == "wid" && (strings.HasPrefix(arguments, "bootstrap ") || strings.HasPrefix(arguments, "pod-identity "))
	if program != "kubectl" && !isWid || strings.HasPrefix(arguments, "--kubeconfig ") {
		return command
	}
	flags := ""
	if k.Path != "" {
		flags += " --kubeconfig " + shell.Word(k.Path, "KUBECONFIG")
	}
	if k.Context != "" && !strings.HasPrefix(arguments, "config ") {
		flags += " --context " + shell.Word(k.Context, "CONTEXT")
	}
	if isWid {
		return command + flags
	}
	return program + flags + " " + arguments
}

// Wid returns a command of this program for the cluster of k.
func (k KubeFile) Wid(command string) string {
	return strings.TrimSpace(command + " " + strings.TrimPrefix(k.Kubectl("kubectl "), "kubectl "))
}

// KubeconfigMistake leaves out texts that repeat an address, because that of a proxy may hold a password.
func KubeconfigMistake(err error) string {
	text := err.Error()
	var parsing *url.Error
	switch {
	case strings.Contains(text, "proxy-url"), strings.Contains(text, "could not parse"), strings.Contains(text, "unsupported scheme"):
		return "a proxy-url of the kubeconfig is malformed: it has to begin with http://, https:// or socks5://"
	case errors.As(err, &parsing):
		return "an address of the kubeconfig is malformed"
	}
	return OneLine(text)
}
