import { describe, expect, test } from 'vitest';

import { namesSeveralHosts, parseDatabaseUrl } from './database-url.js';

describe('parseDatabaseUrl', () => {
  test.each([
    ['jdbc:postgresql://127.0.0.1:5432/global', 'postgresql://127.0.0.1:5432/global'],
    ['postgresql://db-1/global', 'postgresql://db-1/global'],
    ['postgres://db-1:5432/global', 'postgres://db-1:5432/global'],
    ['jdbc:postgresql://db-1/global?sslmode=require', 'postgresql://db-1/global?sslmode=require'],
    ['postgresql:///global?host=/run', 'postgresql:///global?host=%2Frun'],
    ['jdbc:mysql://db-1:3306/global', 'mysql://db-1:3306/global'],
  ])('reads %s', (text, address) => {
    expect(parseDatabaseUrl(text)).toEqual({ address, username: undefined, password: undefined });
  });

  test.each([
    ['postgres://ann:s3cret@db-1/global', 's3cret'],
    ['jdbc:postgresql://ann:p%40ss%2Fword@db-1/global', 'p@ss/word'],
    ['jdbc:postgresql://ann:100%25@db-1/global', '100%'],
    ['jdbc:postgresql://ann:100%@db-1/global', '100%'],
    ['jdbc:postgresql://db-1/global?user=ann&password=s3cret', 's3cret'],
    ['jdbc:postgresql://db-1/global?password=s3cret&user=ann&sslmode=require', 's3cret'],
  ])('takes the credentials out of %s', (text, password) => {
    const url = parseDatabaseUrl(text);
    if (typeof url === 'string') throw new Error(url);
    expect(url.username).toBe('ann');
    expect(url.password?.reveal()).toBe(password);
    expect(url.address).not.toMatch(/ann|s3cret|pass|100/);
  });

  test.each([
    '',
    'global',
    'db-1:5432/global',
    'postgresql://db-1',
    'postgresql://db-1/',
    'postgresql://db-1:port/global',
    'jdbc:postgresql:global',
    'jdbc:postgresql://db-1:5432,db-2:5432/global',
    // a slash is missing, or something in the password is not escaped: it would count as part of the path
    'postgres:ann:s3cret@db-1/global',
    'postgres://ann:12/s3cret@db-1/global',
    'postgres://ann:12/s3cret@db-1',
    'postgres://ann:s3#cret@db-1/global',
    'postgres://ann:12?s3cret@db-1/global',
    // parameters in the style of other databases would count as part of the name of the database
    'jdbc:postgresql://db-1/global;password=s3cret',
    'jdbc:postgresql://db-1/global&password=s3cret',
    'jdbc:postgresql://db-1/password=s3cret',
  ])('does not take %j for a database URL', (text) => {
    expect(parseDatabaseUrl(text)).toBeTypeOf('string');
  });
});

describe('the fault of a database URL', () => {
  test.each([
    ['several hosts', 'postgres://ann:s3cret@db-1,db-2/global', /several hosts/],
    ['a % that is not an escape', 'postgres://db-1/a%zzb', /%25/],
    ['a % in the host that is not an escape', 'postgres://db%zz/global', /%25/],
    ['parameters in the name', 'jdbc:postgresql://db-1/global;password=s3cret', /after a \?.*%3B/],
    ['port 0', 'postgres://db-1:0/global', /port.* 1 to 65535/],
    ['port 0 as a parameter', 'postgres://db-1/global?port=0', /port.* 1 to 65535/],
    ['a port that is out of range', 'postgres://db-1/global?port=65536', /port.* 1 to 65535/],
    ['a port that is not a plain number', 'postgres://db-1/global?port=1e3', /port.* 1 to 65535/],
    ['a password twice', 'postgres://db-1/global?password=s3cret&password=s3cret', /password more than once/],
    ['a user twice', 'postgres://db-1/global?user=s3cret&user=s3cret', /user more than once/],
    ['an empty password', 'postgres://ann@db-1/global?password=', /password without a value/],
  ])('names %s, and shows nothing of it', (_what, text, message) => {
    expect(parseDatabaseUrl(text)).toMatch(message);
    expect(parseDatabaseUrl(text)).not.toContain('s3cret');
  });

  test.each([
    'postgres://db-1:65535/global',
    'postgres://db-1:1/global',
    'postgres://db-1/a%3Bb%3Dc%26d',
    'postgres://%2Frun/global',
  ])('is not reported for %s', (text) => expect(parseDatabaseUrl(text)).toBeTypeOf('object'));
});

describe('a list of hosts', () => {
  test.each([
    'jdbc:postgresql://db-1:5432,db-2:5432/global',
    'postgresql://db-1,db-2:5432/global?target_session_attrs=read-write',
    'postgres://ann:s3cret@db-1,db-2/global',
    'postgres://db-1,db-2',
  ])('is found in %s', (text) => expect(namesSeveralHosts(text)).toBe(true));

  test.each([
    'postgresql://db-1/global',
    'postgres://ann:a,b@db-1/global',
    'postgresql://db-1/a,b',
    'see postgresql://db-1,db-2/global',
  ])('is not found in the URL %s', (text) => expect(namesSeveralHosts(text)).toBe(false));
});
