package doctor

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// judgeMount looks for the projected token that the variable of the token file leads to. The webhook mounts one that fits;
// by hand everything can be missed.
func (e *examination) judgeMount(pod *corev1.Pod, c *corev1.Container, where string, file variable,
	audiences []string) (Finding, bool) {
	if !file.known {
		return unknown(e.cloud.tokenFile+" of "+where+" is not a plain value, and cannot be read here",
			"run wid doctor in the pod"), true
	}
	const remedy = "mount a projected token there: volumes[].projected.sources[].serviceAccountToken with audience and path"
	mount, rest, sure := mountOf(pod, c, slashed(file.value))
	if mount == nil {
		return fail(e.cloud.unset, remedy, "no volume is mounted in %s where its token file should be", where).
			with(differs(e.cloud.tokenFile, file.value, "below a volumeMount")), true
	}
	volume := volumeOf(pod, mount.Name)
	if volume == nil || volume.Projected == nil {
		return unknown("the token file of "+where+" is in the volume "+shown(mount.Name)+", whose content cannot be seen here",
			"run wid doctor in the pod").with(same(e.cloud.tokenFile, file.value)), true
	}
	source := tokenSource(volume.Projected, rest, sure, audiences)
	if source == nil {
		return fail(e.cloud.unset, remedy, "the volume of the token file in %s projects no token to that path", where).
			with(differs(e.cloud.tokenFile, file.value, projectedPaths(mount, volume.Projected))), true
	}
	if f, wrong := e.judgeMountedAudience(where, source.Audience, audiences); wrong {
		return f, true
	}
	if mount.SubPath != "" || mount.SubPathExpr != "" {
		return Finding{Result: Warn, Class: e.cloud.old, Remedy: "mount the volume itself, without subPath",
			Message: "the token of " + where + " is mounted by subPath, so it is never renewed there"}.
			with(differs("subPath", firstOf(mount.SubPath, mount.SubPathExpr), "none")), true
	}
	return Finding{}, false
}

// slashed writes a path of Windows, with or without its drive, as others are: the webhook mounts /var/run for C:\var\run.
func slashed(file string) string {
	if len(file) > 1 && file[1] == ':' {
		file = strings.ReplaceAll(file[2:], `\`, "/")
	}
	return path.Clean(file)
}

// mounted is the token that a container's volume has at the path of its token file. Nil: that cannot be seen.
func (e *examination) mounted(c *corev1.Container, audiences []string) *corev1.ServiceAccountTokenProjection {
	file := variableOf(e.pod, c, e.cloud.tokenFile)
	if !file.set || !file.known {
		return nil
	}
	mount, rest, sure := mountOf(e.pod, c, slashed(file.value))
	if mount == nil {
		return nil
	}
	volume := volumeOf(e.pod, mount.Name)
	if volume == nil || volume.Projected == nil {
		return nil
	}
	return tokenSource(volume.Projected, rest, sure, audiences)
}

// mountOf is the mount with the longest path that the file is below, and the file's path in the volume if that is sure.
func mountOf(pod *corev1.Pod, c *corev1.Container, file string) (best *corev1.VolumeMount, rest string, sure bool) {
	longest := -1
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		at := slashed(m.MountPath)
		below, ok := strings.CutPrefix(file+"/", strings.TrimSuffix(at, "/")+"/")
		if !ok || len(at) <= longest {
			continue
		}
		sub, known := m.SubPath, true
		if m.SubPathExpr != "" {
			sub, known = expanded(pod, c, m.SubPathExpr)
		}
		longest, best, rest, sure = len(at), m, path.Join(sub, below), known
	}
	return best, rest, sure
}

func volumeOf(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// expanded has the values of variables in a subPathExpr, as the kubelet does: $(NAME), and $$ for a dollar. It is not known
// if one of them is not.
func expanded(pod *corev1.Pod, c *corev1.Container, text string) (result string, known bool) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String(), true
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			text = after[1:]
		case !strings.HasPrefix(after, "(") || !closed:
			b.WriteByte('$')
			text = after
		default:
			v := variableOf(pod, c, name)
			if !v.set || !v.known {
				return "", false
			}
			b.WriteString(v.value)
			text = rest
		}
	}
}

// tokenSource is nil if none leads to the path. If the path is not sure any may, best one with the audience that is wanted.
func tokenSource(p *corev1.ProjectedVolumeSource, at string, sure bool, audiences []string) (
	found *corev1.ServiceAccountTokenProjection) {
	for i := range p.Sources {
		t := p.Sources[i].ServiceAccountToken
		switch {
		case t == nil:
		case sure && path.Clean(t.Path) == at, !sure && slices.Contains(audiences, t.Audience):
			return t
		case !sure && found == nil:
			found = t
		}
	}
	return found
}

func projectedPaths(mount *corev1.VolumeMount, p *corev1.ProjectedVolumeSource) string {
	var all []string
	for i := range p.Sources {
		if t := p.Sources[i].ServiceAccountToken; t != nil {
			all = append(all, path.Join(mount.MountPath, t.Path))
		}
	}
	return firstOf(strings.Join(all, " "), "a serviceAccountToken in volumes[].projected.sources")
}

// judgeMountedAudience leaves what is not sure to the exchange, if that is tried with it.
func (e *examination) judgeMountedAudience(where, got string, audiences []string) (Finding, bool) {
	if len(audiences) == 0 || got == audiences[0] {
		return Finding{}, false
	}
	f := fail(e.cloud.wrongAudience, "set audience of the volume's serviceAccountToken in the pod's template",
		"the token that is mounted in %s has another audience than %s", where, e.cloud.name).
		with(differs("audience", firstOf(got, "none: the API server's"), audiences[0]))
	switch {
	case e.surelyWrong(got, audiences):
	case e.podsOwn.audiences != nil, e.token.claims != nil && slices.Equal(e.token.claims.Audience, []string{got}):
		f.Result = Warn
	default:
		f.Result = Unknown
		f.Message += "; whether " + e.cloud.name + " takes it cannot be tried from here"
	}
	return f, true
}
