package alert

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type object map[string]any

// Limits of the services, in bytes, with room for what surrounds a text.
const (
	slackSection  = 2900 // of 3,000 characters a section
	wecomMarkdown = 4000 // of 4,096
	dingtalkText  = 18_000
)

// slackBody is blocks, with a text for notifications.
func slackBody(m Message) object {
	blocks := []object{{"type": "header", "text": object{"type": "plain_text", "text": oneLine(m.Title, 140)}}}
	for _, l := range m.Lines {
		text := slackIcons[l.state()] + " *" + slackEscape(l.Word) + "* " + slackEscape(l.Text)
		if l.Link != "" {
			text += "\n<" + l.Link + "|" + slackEscape(l.Link) + ">"
		}
		blocks = append(blocks, object{"type": "section", "text": object{"type": "mrkdwn", "text": cut(text, slackSection)}})
	}
	if m.More != "" {
		blocks = append(blocks, object{"type": "context", "elements": []object{{"type": "plain_text", "text": m.More}}})
	}
	if m.Link != "" {
		blocks = append(blocks, object{"type": "context", "elements": []object{{"type": "mrkdwn", "text": "<" + m.Link + ">"}}})
	}
	return object{"text": slackEscape(m.Title), "blocks": blocks}
}

var slackIcons = map[string]string{"critical": ":red_circle:", "warning": ":large_orange_circle:", "note": ":white_circle:", "ended": ":white_check_mark:"}

// state is the line's state as a word for programs.
func (l Line) state() string {
	if l.ResolvedAt != nil {
		return "ended"
	}
	return l.Severity.String()
}

var slackEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func slackEscape(s string) string { return slackEscaper.Replace(s) }

// teamsBody is what a workflow's webhook takes: an adaptive card.
func teamsBody(m Message) object {
	colours := map[string]string{"critical": "Attention", "warning": "Warning", "note": "Default", "ended": "Good"}
	body := []object{{"type": "TextBlock", "size": "Medium", "weight": "Bolder", "wrap": true, "text": m.Title}}
	for _, l := range m.Lines {
		body = append(body, object{"type": "TextBlock", "wrap": true, "spacing": "Small", "color": colours[l.state()], "text": mdEscape(l.Word + ": " + l.Text)})
	}
	if m.More != "" {
		body = append(body, object{"type": "TextBlock", "wrap": true, "isSubtle": true, "text": m.More})
	}
	card := object{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": body}
	if m.Link != "" {
		card["actions"] = []object{{"type": "Action.OpenUrl", "title": "Oncemore", "url": m.Link}}
	}
	return object{"type": "message", "attachments": []object{{"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil, "content": card}}}
}

var mdEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "`", "\\`", "<", "&lt;", ">", "&gt;", "#", `\#`)

// mdEscape leaves a text as it is read: ids are no emphasis.
func mdEscape(s string) string { return mdEscaper.Replace(s) }

// dingtalkAddress signs: the base64 of HMAC-SHA256 of "<ms>\n<secret>" by the secret.
func dingtalkAddress(address, secret string, now time.Time) string {
	u, err := url.Parse(address)
	if secret == "" || err != nil {
		return address
	}
	ms := strconv.FormatInt(now.UnixMilli(), 10)
	q := u.Query()
	q.Set("timestamp", ms)
	q.Set("sign", sign(secret, ms+"\n"+secret))
	u.RawQuery = q.Encode()
	return u.String()
}

func sign(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func dingtalkBody(m Message) object {
	return object{"msgtype": "markdown", "markdown": object{"title": m.Title, "text": markdown(m, "### ", dingtalkText)}}
}

// wecomBody keeps within WeCom's limit: what does not fit is cut, the link stays.
func wecomBody(m Message) object {
	return object{"msgtype": "markdown", "markdown": object{"content": markdown(m, "**", wecomMarkdown)}}
}

// markdown is the message in the few marks that both services know.
func markdown(m Message, heading string, most int) string {
	closing := ""
	if heading == "**" {
		closing = "**"
	}
	text := heading + m.Title + closing + "\n\n"
	tail := ""
	if m.More != "" {
		tail = "> " + m.More + "\n\n"
	}
	if m.Link != "" {
		tail += "[" + m.Link + "](" + m.Link + ")\n"
	}
	for _, l := range m.Lines {
		text += "- **" + mdEscape(l.Word) + "** " + mdEscape(l.Text)
		if l.Link != "" {
			text += " [↗](" + l.Link + ")"
		}
		text += "\n"
	}
	if len(text)+len(tail)+1 > most {
		text = cut(text, most-len(tail)-5) + "…\n"
	}
	return text + "\n" + tail
}

// feishuBody is a card; with a secret it is signed: the base64 of HMAC-SHA256 of
// nothing by the key "<s>\n<secret>".
func feishuBody(m Message, secret string, now time.Time) object {
	colour := "green"
	for _, l := range m.Lines {
		if l.ResolvedAt == nil {
			colour = "orange"
		}
	}
	if m.Kind == Trial {
		colour = "blue"
	}
	var elements []object
	for _, l := range m.Lines {
		text := l.Word + ": " + l.Text
		elements = append(elements, object{"tag": "div", "text": object{"tag": "plain_text", "content": text}})
		if l.Link != "" {
			elements = append(elements, object{"tag": "action", "actions": []object{{"tag": "button", "type": "default", "url": l.Link, "text": object{"tag": "plain_text", "content": "↗"}}}})
		}
	}
	for _, text := range []string{m.More, m.Link} {
		if text != "" {
			elements = append(elements, object{"tag": "div", "text": object{"tag": "plain_text", "content": text}})
		}
	}
	if elements == nil {
		elements = []object{{"tag": "div", "text": object{"tag": "plain_text", "content": m.Title}}}
	}
	body := object{"msg_type": "interactive", "card": object{
		"header":   object{"template": colour, "title": object{"tag": "plain_text", "content": m.Title}},
		"elements": elements,
	}}
	if secret != "" {
		s := strconv.FormatInt(now.Unix(), 10)
		body["timestamp"], body["sign"] = s, sign(s+"\n"+secret, "")
	}
	return body
}
