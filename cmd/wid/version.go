package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/registration"
)

// version holds the records of the build.
type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() version {
	v := version{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v version) String() string {
	s := "wid " + v.Version
	if v.Commit != "" {
		s += fmt.Sprintf(" (commit %.12s of %s)", v.Commit, v.Time)
	}
	if v.Modified {
		s += ", modified"
	}
	return s + ", " + v.Go + ", " + v.Platform
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version and commit of this program", Example: "  wid version -o json", Args: cobra.NoArgs}
	o := outputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := buildVersion()
		return o.print(cmd, v, func(w io.Writer) { row(w, v.String()) })
	}
	return cmd
}

func newCompletion(root *cobra.Command) *cobra.Command {
	scripts := map[string]func(w io.Writer) error{
		"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }, "zsh": root.GenZshCompletion,
		"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) }, "powershell": root.GenPowerShellCompletionWithDesc,
	}
	return &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "Print a script that completes commands, flags and names from the cluster",
		Example:   "  wid completion bash >~/.wid-completion && source ~/.wid-completion",
		ValidArgs: slices.Sorted(maps.Keys(scripts)),
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE:      func(cmd *cobra.Command, args []string) error { return scripts[args[0]](cmd.OutOrStdout()) },
	}
}

// completeFlags offers the shell the values of flags, instead of names of files.
func completeFlags(cmd *cobra.Command) {
	complete := func(f *pflag.Flag) {
		if offer := completionOf(f); offer != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, offer) // a flag that is both local and persistent has it already
		}
	}
	cmd.Flags().VisitAll(complete)
	cmd.PersistentFlags().VisitAll(complete)
}

func completionOf(f *pflag.Flag) cobra.CompletionFunc {
	fixed := func(values ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	if o, ok := f.Value.(*output); ok {
		return fixed(o.all...)
	}
	switch f.Name {
	case "provider":
		return fixed(providerNames()...)
	case "registration-auth":
		return fixed(registration.AuthTypeCSR, registration.AuthTypeAWS)
	case addOnAuthFlag, "addon-registration-auth":
		return fixed(registration.AuthTypeCSR, registration.AuthTypeToken)
	case "usages":
		return fixed(bootstrap.UsageSigning, bootstrap.UsageAuthentication)
	case "context", "hub-context":
		return offering(contexts(strings.TrimSuffix(f.Name, "context") + "kubeconfig"))
	case "namespace":
		return offering(namespaces(""))
	case "service-account":
		return offering(serviceAccounts)
	}
	return nil
}

// completionTime bounds a completion: the shell waits for it.
const completionTime = 2 * time.Second

// offer lists the values that may complete what was typed.
type offer func(ctx context.Context, cmd *cobra.Command, typed string) ([]string, error)

// offering offers nothing after an error or when the time is up.
func offering(list offer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		done := make(chan []string, 1)
		go func() {
			values, _ := list(ctx, cmd, typed)
			done <- values
		}()
		select {
		case values := <-done:
			if len(values) > 0 && strings.HasSuffix(values[0], "/") {
				return values, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
			}
			return values, cobra.ShellCompDirectiveNoFileComp
		case <-ctx.Done():
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// valueOf returns "" for a flag that the command lacks.
func valueOf(cmd *cobra.Command, flag string) string {
	if f := cmd.Flag(flag); f != nil {
		return f.Value.String()
	}
	return ""
}

func contexts(kubeconfigFlag string) offer {
	return func(_ context.Context, cmd *cobra.Command, _ string) ([]string, error) {
		loader, err := kubeFile{path: valueOf(cmd, kubeconfigFlag)}.load()
		if err != nil {
			return nil, err
		}
		raw, err := loader.RawConfig()
		return slices.DeleteFunc(slices.Sorted(maps.Keys(raw.Contexts)), func(name string) bool { // the terminal gets them as they are
			return strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
		}), err
	}
}

func namespaces(suffix string) offer {
	return func(ctx context.Context, cmd *cobra.Command, _ string) ([]string, error) {
		return namesOf(ctx, cmd, "Namespace", "", "", suffix)
	}
}

// serviceAccounts offers namespaces first, since listing every ServiceAccount of a large cluster takes too long.
func serviceAccounts(ctx context.Context, cmd *cobra.Command, typed string) ([]string, error) {
	namespace, _, complete := strings.Cut(typed, "/")
	if !complete {
		return namespaces("/")(ctx, cmd, typed)
	}
	return namesOf(ctx, cmd, "ServiceAccount", namespace, namespace+"/", "")
}

// namesOf lists the names of objects, each between prefix and suffix.
func namesOf(ctx context.Context, cmd *cobra.Command, kind, namespace, prefix, suffix string) (names []string, err error) {
	config, err := kubeFile{path: valueOf(cmd, "kubeconfig"), context: valueOf(cmd, "context")}.config()
	if err != nil {
		return nil, err
	}
	kube, err := newKubeClient(config)
	if err != nil {
		return nil, err
	}
	const most = 500
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
	err = kube.List(ctx, list, client.InNamespace(namespace), client.Limit(most))
	for i := range list.Items {
		if name := list.Items[i].Name; len(validation.IsDNS1123Subdomain(name)) == 0 {
			names = append(names, prefix+name+suffix)
		}
	}
	return names, err
}
