import { to } from './route.js';

/** A screen that the menu and the palette lead to. */
export interface ScreenLink {
  readonly title: string;
  readonly href: string;
}

/** Builds the menu: the screens that there always are, and the application's views. */
export function screensWith(views: readonly { readonly name: string }[]): readonly ScreenLink[] {
  return [
    { title: 'Overview', href: to([]) },
    { title: 'Dead letters', href: to(['dead-letters']) },
    { title: 'Consumers', href: to(['consumers']) },
    { title: 'Relays', href: to(['relays']) },
    { title: 'Shards', href: to(['shards']) },
    { title: 'Event log', href: to(['events']) },
    { title: 'Models', href: to(['models']) },
    { title: 'Why', href: to(['why']) },
    { title: 'Idempotency keys', href: to(['keys']) },
    ...views.map(({ name }) => ({ title: viewTitle(name), href: to(['views', name]) })),
    { title: 'Invariants', href: to(['invariants']) },
    { title: 'Audit', href: to(['audit']) },
  ];
}

/** Such as `Open transfers` for `open-transfers`. */
export function viewTitle(name: string): string {
  const words = name.replaceAll('-', ' ');
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`;
}
