import type { BrokerMessage } from './broker.js';

/** The placeholders of a template, each with its value for a message. */
const placeholders: Readonly<Record<string, (message: BrokerMessage) => string>> = {
  // The attribute `type` is the namespace and the type of the event.
  namespace: ({ attributes, eventType }) => (attributes['type'] ?? '').slice(0, -eventType.length - 1),
  model: ({ attributes }) => attributes['modelname'] ?? '',
  type: ({ eventType }) => eventType,
  id: ({ attributes }) => attributes['subject'] ?? '',
  topic: ({ topic }) => topic,
};
const known = Object.keys(placeholders).map((name) => `{${name}}`);

/** Literal text, or the value of a placeholder. */
type Part = string | ((message: BrokerMessage) => string);

/** What the names of one kind of broker must be like. */
export interface NameRule {
  /** What is named, as the error says it. */
  readonly of: string;
  readonly pattern: RegExp;
  /** What the pattern allows, in words that follow "must". */
  readonly words: string;
}

/**
 * A topic, subject or routing key that is made of a message: `{namespace}`, `{model}`, `{type}` (of the event), `{id}` (of the model) and
 * `{topic}` stand for what the message has.
 */
export class NameTemplate {
  readonly #parts: readonly Part[];
  /** The same without the id, so that there are not as many targets as models. */
  readonly #targetParts: readonly Part[];

  /** @throws Error when it has another placeholder, or would break the rule for names */
  constructor(template: string, rule: NameRule) {
    const parts = template.split(/(\{[^{}]*\})/).filter((part) => part !== '');
    this.#parts = parts.map((part) => {
      if (!part.startsWith('{')) return part;
      const name = part.slice(1, -1);
      const placeholder = Object.hasOwn(placeholders, name) ? placeholders[name] : undefined;
      if (placeholder === undefined)
        throw new Error(`The ${rule.of} '${template}' has ${part}: it may have ${known.join(', ')}`);
      return placeholder;
    });
    this.#targetParts = this.#parts.map((part) => (part === placeholders['id'] ? '*' : part));
    const example = this.#parts.map((part) => (typeof part === 'string' ? part : 'x')).join('');
    if (!rule.pattern.test(example)) throw new Error(`The ${rule.of} '${template}' must ${rule.words}`);
  }

  of(message: BrokerMessage): string {
    return joined(this.#parts, message);
  }

  /** What the messages with names of this kind have in common: the name, with `*` for the id of the model. */
  targetOf(message: BrokerMessage): string {
    return joined(this.#targetParts, message);
  }
}

function joined(parts: readonly Part[], message: BrokerMessage): string {
  return parts.map((part) => (typeof part === 'string' ? part : part(message))).join('');
}
