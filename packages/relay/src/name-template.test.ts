import { expect, test } from 'vitest';

import { messageFor } from '../test/broker-suite.js';
import { NameTemplate } from './name-template.js';

const rule = { of: 'subject', pattern: /^[^ ]+$/, words: 'have no space' };

function messageOf(id: string) {
  const message = messageFor('a.topic', id, 1);
  const type = `com.example.${message.eventType}`;
  return { ...message, attributes: { ...message.attributes, type } };
}

test.each([
  ['{namespace}.{model}.{type}.{id}', 'com.example.Counter.CounterIncreasedEvent.7'],
  ['{topic}', 'a.topic'],
  ['fixed', 'fixed'],
  ['{id}{id}', '77'],
  ['a{model}}', 'aCounter}'],
])('a name like %s has what the message has', (template, name) => {
  expect(new NameTemplate(template, rule).of(messageOf('7'))).toBe(name);
});

test('names that differ only in the id of the model have one target', () => {
  const template = new NameTemplate('{model}.{id}.{type}', rule);
  expect(template.targetOf(messageOf('7'))).toBe(template.targetOf(messageOf('8')));
  expect(template.of(messageOf('7'))).not.toBe(template.of(messageOf('8')));
  expect(template.targetOf({ ...messageOf('7'), eventType: 'Other' })).not.toBe(
    template.targetOf(messageOf('7')),
  );
});

test('an id that looks like a placeholder is not replaced', () => {
  expect(new NameTemplate('{id}.{type}', rule).of(messageOf('{type}'))).toBe('{type}.CounterIncreasedEvent');
});

test.each(['{modell}', '{}', 'a.{Model}', '{ model }', '{constructor}', '{__proto__}'])(
  '%s is refused, and the error names what there is',
  (template) => {
    expect(() => new NameTemplate(template, rule)).toThrow('{namespace}, {model}, {type}, {id}, {topic}');
  },
);

test('a name that no message could have is refused', () => {
  expect(() => new NameTemplate('a b.{model}', rule)).toThrow("The subject 'a b.{model}' must have no space");
});
