import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';

import { to } from './address.js';
import { asApiError } from './use-answer.js';
import { PresentChange } from './change-dialog.js';
import { follow, isConnected } from './live.js';
import { Palette, isPaletteOpen } from './palette.js';
import { Badge, Problem, Screen } from './parts.js';
import { route } from './route.js';
import { screensWith } from './screens.js';
import { Audit } from './screens/audit.js';
import { Consumers } from './screens/consumers.js';
import { DeadLetters } from './screens/dead-letters.js';
import { Events } from './screens/events.js';
import { Invariants } from './screens/invariants.js';
import { Keys } from './screens/keys.js';
import { Models } from './screens/model.js';
import { Overview } from './screens/overview.js';
import { Shards } from './screens/shards.js';
import { View } from './screens/view.js';
import { Why } from './screens/why.js';
import { type ApiError, about, refusal, signIn, signOut, token } from './session.js';

/** The console: the question for the token, and then its screens. */
export function App(): JSX.Element {
  return about.value === undefined ? <SignIn /> : <Console />;
}

function SignIn(): JSX.Element {
  const [error, setError] = useState<ApiError>();
  const [isBusy, setBusy] = useState(false);
  const use = (value: string): void => {
    setBusy(true);
    setError(undefined);
    signIn(value)
      .catch((thrown: unknown) => {
        const refused = asApiError(thrown);
        if (refused.status !== 401) setError(refused);
      })
      .finally(() => setBusy(false));
  };
  useEffect(() => {
    if (token.value !== undefined) use(token.value);
  }, []);
  return (
    <main class="sign-in">
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          const value = new FormData(event.currentTarget).get('token');
          if (typeof value === 'string') use(value.trim());
        }}
      >
        <h1>Console</h1>
        <label class="field">
          <span>Token</span>
          <input name="token" type="password" required autocomplete="off" autofocus />
        </label>
        <p class="muted">That of framework.operator. It is kept until the tab is closed.</p>
        {refusal.value !== undefined && (
          <p class="notice bad" role="alert">
            {refusal.value}
          </p>
        )}
        {error !== undefined && <Problem error={error} />}
        <button type="submit" class="primary" disabled={isBusy}>
          Sign in
        </button>
      </form>
    </main>
  );
}

function Console(): JSX.Element {
  const screens = screensWith(about.value?.views ?? []);
  const [isMenuOpen, setMenuOpen] = useState(false);
  const address = to(route.value.path.slice(0, route.value.path[0] === 'views' ? 2 : 1));
  useEffect(() => {
    const stop = new AbortController();
    void follow(stop.signal);
    return () => stop.abort();
  }, []);
  const present = screens.find(({ href }) => href === address)?.title;
  useEffect(() => {
    document.title = present === undefined ? 'Console' : `${present} – Console`;
    setMenuOpen(false);
  }, [present, route.value]);
  return (
    <div class="console">
      <header class="top">
        <button
          type="button"
          class="plain menu-button"
          aria-expanded={isMenuOpen}
          aria-controls="menu"
          onClick={() => setMenuOpen(!isMenuOpen)}
        >
          ☰ <span class="unseen">Menu</span>
        </button>
        <a class="name" href={to([])}>
          Console
        </a>
        <Connection />
        {about.value?.readOnly === true && <Badge tone="warn">read-only</Badge>}
        <span class="space" />
        <button type="button" class="search" onClick={() => (isPaletteOpen.value = true)}>
          Go to <kbd>Ctrl K</kbd>
        </button>
        <button type="button" class="plain" onClick={() => signOut()}>
          Sign out
        </button>
      </header>
      <nav id="menu" class={isMenuOpen ? 'menu open' : 'menu'} aria-label="Screens">
        {[...Map.groupBy(screens, ({ group }) => group)].map(([group, links]) => (
          <div key={group} role="group" aria-label={group || undefined}>
            {group !== '' && <p class="menu-group">{group}</p>}
            {links.map(({ title, href }) => (
              <a key={href} href={href} aria-current={href === address ? 'page' : undefined}>
                {title}
              </a>
            ))}
          </div>
        ))}
      </nav>
      <main tabIndex={-1}>
        <Present />
      </main>
      <PresentChange />
      {isPaletteOpen.value && <Palette screens={screens} />}
    </div>
  );
}

function Connection(): JSX.Element {
  if (isConnected.value === true) return <Badge tone="ok">live</Badge>;
  return (
    <span role="status">
      <Badge tone={isConnected.value === false ? 'bad' : 'quiet'}>
        {isConnected.value === false ? 'reconnecting' : 'connecting'}
      </Badge>
    </span>
  );
}

function Present(): JSX.Element {
  const [name = 'overview', part] = route.value.path;
  switch (name) {
    case 'overview':
      return <Overview />;
    case 'dead-letters':
      return <DeadLetters />;
    case 'consumers':
      return <Consumers relays={false} />;
    case 'relays':
      return <Consumers relays />;
    case 'shards':
      return <Shards />;
    case 'events':
      return <Events />;
    case 'models':
      return <Models />;
    case 'why':
      return <Why />;
    case 'keys':
      return <Keys />;
    case 'views':
      return <View key={part} />;
    case 'invariants':
      return <Invariants />;
    case 'audit':
      return <Audit />;
    default:
      return (
        <Screen title="Nothing is here">
          <p>
            <a href={to([])}>Go to the overview.</a>
          </p>
        </Screen>
      );
  }
}
