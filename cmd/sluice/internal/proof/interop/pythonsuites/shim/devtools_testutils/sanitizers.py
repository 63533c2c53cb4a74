def add_remove_header_sanitizer(**_):
    pass


add_general_regex_sanitizer = add_oauth_response_sanitizer = add_remove_header_sanitizer
