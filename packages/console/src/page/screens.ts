/** A screen that the menu and the palette lead to. */
export interface ScreenLink {
  readonly title: string;
  readonly href: string;
  /** Under which heading of the menu it is. */
  readonly group: string;
}

import { to } from './address.js';
/** Builds the menu: the screens that there always are, and the application's views. */
export function screensWith(views: readonly { readonly name: string }[]): readonly ScreenLink[] {
  return [
    link('', 'Overview'),
    link('Delivery', 'Dead letters', 'dead-letters'),
    link('Delivery', 'Consumers', 'consumers'),
    link('Delivery', 'Relays', 'relays'),
    link('Delivery', 'Shards', 'shards'),
    link('Log', 'Events', 'events'),
    link('Log', 'Models', 'models'),
    link('Log', 'Why', 'why'),
    link('Log', 'Idempotency keys', 'keys'),
    ...views.map(({ name }) => link('Application', wordsOf(name), 'views', name)),
    link('Application', 'Invariants', 'invariants'),
    link('Changes', 'Audit', 'audit'),
  ];
}

function link(group: string, title: string, ...path: string[]): ScreenLink {
  return { group, title, href: to(path) };
}

/** Such as `Open transfers` for `open-transfers`, and `Source id` for `sourceId`. */
export function wordsOf(name: string): string {
  const words = name
    .replaceAll(/[-_]/g, ' ')
    .replaceAll(
      /([a-z\d])([A-Z])/g,
      (_all, before: string, after: string) => `${before} ${after.toLowerCase()}`,
    );
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`;
}
